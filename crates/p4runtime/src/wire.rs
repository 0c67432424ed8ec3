//! The messages and gRPC stubs of P4Runtime, generated from the files in `proto`.
//!
//! The files in `proto` were written from the tables of the specification and contain the parts
//! that this crate uses. Only paths, field numbers and types matter on the wire. Names matter in
//! the text form of a P4Info and in the type of an `Any`.

mod codec;
mod parse;
mod writer;

pub(crate) use codec::{ContiguousMessage, MessageCodec};
#[cfg(any(test, feature = "testing"))]
pub(crate) use parse::{read_request, write_request};
pub(crate) use writer::ProtoWriter;

/// `p4`
pub mod p4 {
    /// `p4.v1`: the protocol.
    #[expect(missing_docs, unused_qualifications, reason = "the code is generated")]
    #[expect(
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "the code is generated"
    )]
    #[expect(clippy::missing_errors_doc, clippy::too_many_lines, reason = "the code is generated")]
    pub mod v1 {
        tonic::include_proto!("p4.v1");
    }
    /// `p4.config.v1`: the P4Info of a program.
    pub mod config {
        /// `p4.config.v1`
        #[expect(missing_docs, reason = "the code is generated")]
        pub mod v1 {
            tonic::include_proto!("p4.config.v1");
        }
    }
}

/// `google`
pub mod google {
    /// `google.rpc`
    #[expect(missing_docs, reason = "the code is generated")]
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}

#[cfg(test)]
mod tests;
