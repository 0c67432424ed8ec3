//! Requests with pre-encoded parts, and responses of which only the counters are decoded.
//!
//! Encoded messages have the wire format of the protocol messages, with bytes in place of nested
//! messages. A rule is encoded once, in the thread of the owner, and afterwards only its bytes are
//! copied. A response with many entries is decoded to names and counters only.

use prost::Message;
use shunt_gigaflow::offload::{Counters, LtmIndex};
use tonic::{
    Code, Request, Response, Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery,
    transport::Channel,
};

use crate::wire::{
    ContiguousMessage, MessageCodec, ProtoWriter,
    p4::v1::{CounterData, Uint128, WriteResponse, update::Type},
};

/// A `WriteRequest` with encoded updates.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncodedWrite {
    #[prost(uint64, tag = "1")]
    pub(super) device_id: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) election_id: Option<Uint128>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub(super) updates: Vec<Vec<u8>>,
    #[prost(string, tag = "6")]
    pub(super) role: String,
}

/// A `ReadRequest` with encoded entities.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncodedRead {
    #[prost(uint64, tag = "1")]
    pub(super) device_id: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(super) entities: Vec<Vec<u8>>,
    #[prost(string, tag = "3")]
    pub(super) role: String,
}

/// A `ReadResponse` of which only counters are decoded.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CountsRead {
    #[prost(message, repeated, tag = "1")]
    pub(super) entities: Vec<CountedEntity>,
}

impl ContiguousMessage for CountsRead {}

/// An `Entity` of a [`CountsRead`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct CountedEntity {
    #[prost(message, optional, tag = "2")]
    table_entry: Option<CountedEntry>,
}

/// A `TableEntry` of a [`CountedEntity`].
#[derive(Clone, PartialEq, Message)]
struct CountedEntry {
    #[prost(uint64, tag = "5")]
    controller_metadata: u64,
    #[prost(message, optional, tag = "7")]
    counter_data: Option<CounterData>,
}

/// The counters of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryCount {
    pub(super) entry: LtmIndex,
    pub(super) counters: Counters,
}

impl CountedEntity {
    /// Returns the counters; `None` if this is not an entry or has no counter.
    pub(super) fn count(&self) -> Option<EntryCount> {
        let entry = self.table_entry.as_ref()?;
        let data = entry.counter_data.as_ref()?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let (packets, bytes) = (count(data.packet_count), count(data.byte_count));
        let entry = LtmIndex(entry.controller_metadata);
        Some(EntryCount { entry, counters: Counters { packets, bytes } })
    }
}

/// Encodes the read entity for the counter of the entry with this key.
pub(super) fn counter_request(key: &[u8]) -> Vec<u8> {
    let mut writer = ProtoWriter::new();
    writer.entity(|writer| {
        writer.raw(key);
        writer.counter_request();
    });
    writer.into_vec()
}

/// Encodes the update that deletes the entry with this key.
pub(super) fn deletion(key: &[u8]) -> Vec<u8> {
    let mut writer = ProtoWriter::new();
    writer.update(Type::Delete, |writer| writer.raw(key));
    writer.into_vec()
}

/// A gRPC client for encoded requests, which the generated stubs cannot send.
#[derive(Clone, Debug)]
pub(super) struct EncodedClient(Grpc<Channel>);

impl EncodedClient {
    /// Creates a client for messages of at most `bytes_max` bytes.
    pub(super) fn new(channel: Channel, bytes_max: usize) -> Self {
        let grpc = Grpc::new(channel);
        Self(grpc.max_decoding_message_size(bytes_max).max_encoding_message_size(bytes_max))
    }

    /// Sends a write request that is encoded already.
    pub(super) async fn write(
        &mut self,
        request: EncodedWrite,
    ) -> Result<Response<WriteResponse>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Write");
        let codec = MessageCodec::<EncodedWrite, WriteResponse>::default();
        self.0.unary(Request::new(request), path, codec).await
    }

    /// Sends a request for hits that is encoded already.
    pub(super) async fn read_counts(
        &mut self,
        request: EncodedRead,
    ) -> Result<Response<Streaming<CountsRead>>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Read");
        let codec = MessageCodec::<EncodedRead, CountsRead>::default();
        self.0.server_streaming(Request::new(request), path, codec).await
    }

    /// Waits until the connection can take a request.
    async fn ready(&mut self) -> Result<(), Status> {
        let unready = |error| Status::new(Code::Unknown, format!("service was not ready: {error}"));
        self.0.ready().await.map_err(unready)
    }
}
