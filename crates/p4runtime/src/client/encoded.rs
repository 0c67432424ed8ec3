//! Requests whose parts are bytes already, and answers of which only the counts are looked at.
//!
//! On the wire a message and bytes are the same: these messages say what those of the protocol do. A
//! part is encoded once, where the rule is at hand, and is copied from then on; of an answer that names
//! many entries, nothing but name and count becomes anything.

use prost::Message;
use shunt_gigaflow::offload::{Counters, LtmIndex};
use tonic::{
    Code, Request, Response, Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery,
    transport::Channel,
};

use crate::wire::{
    Codec, Whole, Writer,
    p4::v1::{CounterData, Uint128, WriteResponse, update::Type},
};

/// A `WriteRequest`.
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

/// A `ReadRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncodedRead {
    #[prost(uint64, tag = "1")]
    pub(super) device_id: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(super) entities: Vec<Vec<u8>>,
    #[prost(string, tag = "3")]
    pub(super) role: String,
}

/// A `ReadResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CountsRead {
    #[prost(message, repeated, tag = "1")]
    pub(super) entities: Vec<CountedEntity>,
}

impl Whole for CountsRead {}

/// An `Entity` of it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CountedEntity {
    #[prost(message, optional, tag = "2")]
    table_entry: Option<CountedEntry>,
}

/// A `TableEntry` of it.
#[derive(Clone, PartialEq, Message)]
struct CountedEntry {
    #[prost(uint64, tag = "5")]
    controller_metadata: u64,
    #[prost(message, optional, tag = "7")]
    counter_data: Option<CounterData>,
}

/// What an entry has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) entry: LtmIndex,
    pub(super) counters: Counters,
}

impl CountedEntity {
    /// What it says; `None`: it is no entry, or has no counter.
    pub(super) fn counted(&self) -> Option<Counted> {
        let entry = self.table_entry.as_ref()?;
        let data = entry.counter_data.as_ref()?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let (packets, bytes) = (count(data.packet_count), count(data.byte_count));
        let entry = LtmIndex(entry.controller_metadata);
        Some(Counted { entry, counters: Counters { packets, bytes } })
    }
}

/// The question for the counter of the entry at a place.
pub(super) fn counter_question(place: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.entity(|writer| {
        writer.written(place);
        writer.counter_asked();
    });
    writer.into_vec()
}

/// The update that deletes the entry at a place.
pub(super) fn deletion(place: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.update(Type::Delete, |writer| writer.written(place));
    writer.into_vec()
}

/// Makes these requests: the stubs of the protocol have messages for all that is in theirs.
#[derive(Clone, Debug)]
pub(super) struct Stub(Grpc<Channel>);

impl Stub {
    /// Over a channel, for messages of so many bytes.
    pub(super) fn new(channel: Channel, bytes_max: usize) -> Self {
        let grpc = Grpc::new(channel);
        Self(grpc.max_decoding_message_size(bytes_max).max_encoding_message_size(bytes_max))
    }

    pub(super) async fn write(
        &mut self,
        request: EncodedWrite,
    ) -> Result<Response<WriteResponse>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Write");
        let codec = Codec::<EncodedWrite, WriteResponse>::default();
        self.0.unary(Request::new(request), path, codec).await
    }

    pub(super) async fn read_counts(
        &mut self,
        request: EncodedRead,
    ) -> Result<Response<Streaming<CountsRead>>, Status> {
        self.ready().await?;
        let path = PathAndQuery::from_static("/p4.v1.P4Runtime/Read");
        let codec = Codec::<EncodedRead, CountsRead>::default();
        self.0.server_streaming(Request::new(request), path, codec).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let unready = |error| Status::new(Code::Unknown, format!("service was not ready: {error}"));
        self.0.ready().await.map_err(unready)
    }
}
