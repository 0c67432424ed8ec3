//! Multipart requests in several messages (OpenFlow 1.3.5, 7.3.5).

use std::collections::BTreeMap;

use super::Limits;
use crate::{
    error::ErrorCode,
    message::{MultipartRequest, Xid},
    wire::{
        Reader,
        v13::multipart::{PartHeader, read_part_header, read_request},
    },
};

/// Requests that are half here, by transaction.
#[derive(Debug, Default)]
pub(super) struct Assemblies(BTreeMap<Xid, Assembly>);

#[derive(Debug)]
struct Assembly {
    kind: u16,
    body: Vec<u8>,
}

impl Assemblies {
    /// Takes the body of a message; answers with the request once it is whole.
    pub(super) fn take(
        &mut self,
        xid: Xid,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Option<MultipartRequest>, ErrorCode> {
        let mut reader = Reader::new(body);
        let PartHeader { kind, more } = read_part_header(&mut reader)?;
        let Some(mut assembly) = self.0.remove(&xid) else {
            if more {
                return self.begin(xid, kind, reader.rest(), limits).map(|()| None);
            }
            return read_request(kind, &mut reader).map(Some);
        };
        if assembly.kind != kind {
            return Err(ErrorCode::BadMultipart);
        }
        if assembly.body.len() + reader.len() > limits.assembly_len_max {
            return Err(ErrorCode::MultipartOverflow);
        }
        assembly.body.extend_from_slice(reader.rest());
        if more {
            self.0.insert(xid, assembly);
            return Ok(None);
        }
        read_request(kind, &mut Reader::new(&assembly.body)).map(Some)
    }

    fn begin(
        &mut self,
        xid: Xid,
        kind: u16,
        body: &[u8],
        limits: &Limits,
    ) -> Result<(), ErrorCode> {
        if self.0.len() >= limits.assemblies_max {
            return Err(ErrorCode::MultipartOverflow);
        }
        self.0.insert(xid, Assembly { kind, body: body.to_vec() });
        Ok(())
    }
}
