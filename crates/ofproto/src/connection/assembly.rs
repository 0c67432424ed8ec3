//! Multipart requests in several messages (OpenFlow 1.3.5, 7.3.5).
//!
//! One whose next part does not come is forgotten, and its first part is answered by the error that
//! says so (OpenFlow 1.4.1, 7.3.5; ONF extensions for 1.3.x, EXT-264).

use std::collections::BTreeMap;

use bytes::Bytes;
use shunt_pipeline::Time;

use super::Limits;
use crate::{
    error::ErrorCode,
    message::{MultipartRequest, Xid},
    wire::{Codec, Reader, header::Header, v13::multipart::PartHeader},
};

/// Bytes of a message that an error quotes at least (OpenFlow 1.3.5, 7.4.4).
const QUOTE_LEN: usize = 64;

/// Requests that are half here, by transaction.
#[derive(Debug, Default)]
pub(super) struct Assemblies(BTreeMap<Xid, Assembly>);

#[derive(Debug)]
struct Assembly {
    kind: u16,
    body: Vec<u8>,
    /// The first part, as much of it as an error quotes.
    quote: Bytes,
    /// When the last part came.
    touched: Time,
}

impl Assemblies {
    /// Takes a message; answers with the request once it is whole.
    pub(super) fn take(
        &mut self,
        xid: Xid,
        frame: &Bytes,
        limits: &Limits,
        now: Time,
        codec: Codec,
    ) -> Result<Option<MultipartRequest>, ErrorCode> {
        let mut reader = Reader::new(frame.get(Header::LEN..).unwrap_or_default());
        let PartHeader { kind, more } = codec.read_part_header(&mut reader)?;
        let Some(mut assembly) = self.0.remove(&xid) else {
            if more {
                let quote = Bytes::copy_from_slice(frame.get(..QUOTE_LEN).unwrap_or(frame));
                let body = reader.rest().to_vec();
                let begun = Assembly { kind, body, quote, touched: now };
                return self.begin(xid, begun, limits).map(|()| None);
            }
            return codec.read_request(kind, &mut reader).map(Some);
        };
        if assembly.kind != kind {
            return Err(ErrorCode::BadMultipart);
        }
        if assembly.body.len() + reader.len() > limits.assembly_len_max {
            return Err(ErrorCode::MultipartOverflow);
        }
        assembly.body.extend_from_slice(reader.rest());
        assembly.touched = now;
        if more {
            self.0.insert(xid, assembly);
            return Ok(None);
        }
        codec.read_request(kind, &mut Reader::new(&assembly.body)).map(Some)
    }

    /// Forgets requests whose next part has not come; answers with their first parts.
    pub(super) fn expire(&mut self, limits: &Limits, now: Time) -> Vec<(Xid, Bytes)> {
        let is_over = |part: &Assembly| now >= part.touched.after(limits.assembly_timeout);
        let over = self.0.extract_if(.., |_, assembly| is_over(assembly));
        over.map(|(xid, assembly)| (xid, assembly.quote)).collect()
    }

    /// When the next request is forgotten.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Time> {
        self.0.values().map(|assembly| assembly.touched.after(limits.assembly_timeout)).min()
    }

    fn begin(&mut self, xid: Xid, begun: Assembly, limits: &Limits) -> Result<(), ErrorCode> {
        if self.0.len() >= limits.assemblies_max {
            return Err(ErrorCode::MultipartOverflow);
        }
        self.0.insert(xid, begun);
        Ok(())
    }
}
