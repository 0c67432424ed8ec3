//! Error numbers of OpenFlow 1.0.
//!
//! OpenFlow 1.0 has fewer error types, and other numbers for some of them. An error that it lacks
//! is sent as a vendor error of Nicira, with the number of Open vSwitch.

use crate::error::{ErrorCode, ErrorNumber, NICIRA_EXPERIMENTER};

/// Returns an error number of the standard.
const fn standard(kind: u16, code: u16) -> ErrorNumber {
    ErrorNumber::Standard { kind, code }
}

/// Returns the number of a vendor error of Nicira.
const fn nicira(kind: u16, code: u16) -> ErrorNumber {
    ErrorNumber::Vendor { vendor: NICIRA_EXPERIMENTER, kind, code }
}

/// `NXBRC_UNENCODABLE_ERROR`: an error that OpenFlow 1.0 cannot express.
const UNENCODABLE: ErrorNumber = nicira(1, 521);

/// Returns the wire numbers of an error in OpenFlow 1.0.
pub(crate) const fn error_number(code: ErrorCode) -> ErrorNumber {
    match code {
        ErrorCode::BadTableId => nicira(1, 512),
        ErrorCode::IsSlave => standard(1, 5),
        ErrorCode::BadPort => nicira(1, 514),
        ErrorCode::MustBeZero => nicira(1, 515),
        ErrorCode::ResumeStale => nicira(1, 534),
        ErrorCode::MonitorExists => nicira(1, 517),
        ErrorCode::MonitorFlags => nicira(1, 518),
        ErrorCode::MonitorUnknown => nicira(1, 519),
        ErrorCode::ActionInconsistent => nicira(1, 522),
        ErrorCode::SetFieldType => nicira(1, 523),
        ErrorCode::SetFieldLength => nicira(1, 524),
        ErrorCode::SetFieldArgument => nicira(1, 525),
        ErrorCode::ActionMustBeZero => nicira(2, 256),
        ErrorCode::ActionConjunction => nicira(2, 526),
        ErrorCode::ActionOutGroup => nicira(2, 9),
        ErrorCode::InstructionUnsupported => nicira(2, 257),
        ErrorCode::MatchWildcards => nicira(1, 262),
        ErrorCode::MatchField => nicira(0, 263),
        ErrorCode::MatchValue => nicira(1, 258),
        ErrorCode::MatchMask => nicira(1, 259),
        ErrorCode::MatchPrerequisite => nicira(1, 260),
        ErrorCode::MatchDuplicate => nicira(1, 261),
        ErrorCode::MatchNicira => nicira(1, 256),
        ErrorCode::FlowTableFull => standard(3, 0),
        ErrorCode::FlowOverlap => standard(3, 1),
        ErrorCode::FlowEmergencyTimeout => standard(3, 3),
        ErrorCode::FlowCommand => standard(3, 4),
        ErrorCode::FlowFlags => nicira(3, 258),
        ErrorCode::PortModPort => standard(4, 0),
        ErrorCode::PortModAddress => standard(4, 1),
        ErrorCode::QueuePort => standard(5, 0),
        ErrorCode::QueueUnknown => standard(5, 1),
        ErrorCode::RoleUnknown => nicira(1, 513),
        ErrorCode::PropertyType => nicira(13, 2),
        ErrorCode::PropertyLength => nicira(13, 3),
        ErrorCode::PropertyValue => nicira(13, 4),
        ErrorCode::PropertyExperimenter => nicira(14, 6),
        _ => match code.number() {
            // Hello, request and action errors have the numbers of later versions.
            number @ ErrorNumber::Standard { kind: 0, .. } => number,
            number @ ErrorNumber::Standard { kind: 1 | 2, code: 0..=8 } => number,
            // Groups are an extension, and so are their errors.
            ErrorNumber::Standard { kind: 6, code } => nicira(6, code),
            ErrorNumber::Standard { .. }
            | ErrorNumber::Experimenter { .. }
            | ErrorNumber::Vendor { .. } => UNENCODABLE,
        },
    }
}

/// Returns the name of an error in OpenFlow 1.0.
///
/// Later versions have other names for the errors of vendors and of statistics. `ovs-ofctl` prints
/// these names in all versions.
pub(crate) const fn error_name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BadMultipart => "OFPBRC_BAD_STAT",
        ErrorCode::BadExperimenter => "OFPBRC_BAD_VENDOR",
        ErrorCode::BadExperimenterType => "OFPBRC_BAD_SUBTYPE",
        ErrorCode::ActionExperimenter => "OFPBAC_BAD_VENDOR",
        ErrorCode::ActionExperimenterType => "OFPBAC_BAD_VENDOR_TYPE",
        _ => code.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ovs-vswitchd` 3.1 sends these numbers over OpenFlow 1.0.
    #[test]
    fn errors_of_groups_are_those_of_nicira() {
        assert_eq!(error_number(ErrorCode::ActionOutGroup), nicira(2, 9));
        assert_eq!(error_number(ErrorCode::GroupExists), nicira(6, 0));
        assert_eq!(error_number(ErrorCode::GroupWatch), nicira(6, 6));
        assert_eq!(error_number(ErrorCode::GroupBucketExists), nicira(6, 16));
        assert_eq!(error_number(ErrorCode::PropertyExperimenter), nicira(14, 6));
        assert_eq!(error_number(ErrorCode::ActionOrder), UNENCODABLE);
    }

    #[test]
    fn no_error_has_type_of_later_version() {
        for code in ErrorCode::ALL {
            if let ErrorNumber::Standard { kind, .. } = error_number(*code) {
                assert!(kind <= 5, "{code}");
            }
        }
    }
}
