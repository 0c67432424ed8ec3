//! The drop reasons of packets for which the tables have no output.

use shunt_pipeline::{DropCause, TraversalError};

use crate::metrics::DropReason;

impl From<TraversalError> for DropReason {
    fn from(error: TraversalError) -> Self {
        match error {
            TraversalError::NoSuchPort => Self::BridgeNotFound,
            TraversalError::TooDeep(_) => Self::RecursionTooDeep,
            TraversalError::TooManyResubmits(_) => Self::TooManyResubmits,
            TraversalError::TooManyActions(_) => Self::TooManyActions,
            TraversalError::StackTooDeep(_) => Self::StackTooDeep,
            TraversalError::TooManyLearnedRules(_) => Self::TooManyLearnedRules,
            TraversalError::TooManyMplsLabels(_) => Self::TooManyMplsLabels,
            TraversalError::TooManyRecirculations(_) => Self::RecirculationTooDeep,
        }
    }
}

impl From<DropCause> for DropReason {
    fn from(cause: DropCause) -> Self {
        match cause {
            DropCause::RuleWithoutOutput => Self::RuleWithoutOutput,
            DropCause::NoMatchingRule => Self::NoMatchingRule,
            DropCause::IngressPortDisabled => Self::IngressPortDisabled,
            DropCause::MirrorOutputPort => Self::MirrorOutputPort,
            DropCause::BondMemberInactive => Self::BondMemberInactive,
            DropCause::BondLoop => Self::BondLoop,
            DropCause::BondWithoutMember => Self::BondWithoutMember,
            DropCause::OutputPortDisabled => Self::OutputPortDisabled,
            DropCause::OutputPortMissing => Self::OutputPortMissing,
            DropCause::Hairpin => Self::Hairpin,
            DropCause::PacketInDisabled => Self::PacketInDisabled,
            DropCause::UnknownIngressPort => Self::UnknownIngressPort,
            DropCause::VlanNotAllowed => Self::VlanNotAllowed,
            DropCause::BothPortsProtected => Self::BothPortsProtected,
            DropCause::UnparsedVlanTag => Self::UnparsedVlanTag,
            DropCause::ReservedDestination => Self::ReservedDestination,
            DropCause::LearnedOnIngressPort => Self::LearnedOnIngressPort,
            DropCause::FloodWithoutPorts => Self::FloodWithoutPorts,
            DropCause::MulticastWithoutReceiver => Self::MulticastWithoutReceiver,
            DropCause::TtlExpired => Self::TtlExpired,
            DropCause::NoLiveBucket => Self::NoLiveBucket,
        }
    }
}
