//! Multipart requests that span several messages (OpenFlow 1.3.5, 7.3.5).
//!
//! A request times out if its next part does not arrive. The switch then replies with an error that
//! quotes the first part of the request (OpenFlow 1.4.1, 7.3.5; ONF extensions for 1.3.x, EXT-264).

use std::collections::BTreeMap;

use bytes::Bytes;
use shunt_pipeline::Time;

use super::ConnectionLimits;
use crate::{
    error::ErrorCode,
    message::{MultipartRequest, Xid},
    wire::{ByteReader, Codec, header::Header, part_writer::PartHeader},
};

/// Minimum length of the quote in an error, in bytes (OpenFlow 1.3.5, 7.4.4).
const QUOTE_LEN: usize = 64;

/// Incomplete multipart requests by transaction id.
#[derive(Debug, Default)]
pub(super) struct Assemblies(BTreeMap<Xid, Assembly>);

/// An incomplete multipart request.
#[derive(Debug)]
struct Assembly {
    /// The type of the multipart request.
    kind: u16,
    /// The body parts so far.
    body: Vec<u8>,
    /// The first [`QUOTE_LEN`] bytes of the first part of the request.
    quote: Bytes,
    /// Time at which the newest part of the request arrived.
    touched: Time,
}

impl Assemblies {
    /// Adds one part to its request; returns the request when it is complete.
    pub(super) fn take(
        &mut self,
        xid: Xid,
        frame: &Bytes,
        limits: &ConnectionLimits,
        now: Time,
        codec: Codec,
    ) -> Result<Option<MultipartRequest>, ErrorCode> {
        let mut reader = ByteReader::new(frame.get(Header::LEN..).unwrap_or_default());
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
        codec.read_request(kind, &mut ByteReader::new(&assembly.body)).map(Some)
    }

    /// Drops timed-out requests; returns their ids and quotes of their first parts.
    pub(super) fn expire(&mut self, limits: &ConnectionLimits, now: Time) -> Vec<(Xid, Bytes)> {
        let is_over = |part: &Assembly| now >= part.touched.after(limits.assembly_timeout);
        let over = self.0.extract_if(.., |_, assembly| is_over(assembly));
        over.map(|(xid, assembly)| (xid, assembly.quote)).collect()
    }

    /// Returns the time at which the next request times out.
    pub(super) fn deadline(&self, limits: &ConnectionLimits) -> Option<Time> {
        self.0.values().map(|assembly| assembly.touched.after(limits.assembly_timeout)).min()
    }

    /// Begins to assemble a request in several parts.
    fn begin(
        &mut self,
        xid: Xid,
        begun: Assembly,
        limits: &ConnectionLimits,
    ) -> Result<(), ErrorCode> {
        if self.0.len() >= limits.assemblies_max {
            return Err(ErrorCode::MultipartOverflow);
        }
        self.0.insert(xid, begun);
        Ok(())
    }
}
