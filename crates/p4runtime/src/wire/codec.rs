//! How messages become bytes, and bytes messages: by prost, from and to one piece of memory.
//!
//! A request of a thousand entries has ten thousand values of a few bytes. To cut a value out of the
//! buffer that a connection reads into costs an allocation, and out of bytes that are shared a count;
//! so a message is cut out once, as a whole, and those that are long are [parsed](super::parse).

use std::marker::PhantomData;

use prost::{
    DecodeError, Message,
    bytes::{Buf, Bytes},
};
use tonic::{
    Status,
    codec::{DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use super::{
    p4::v1::{
        CapabilitiesRequest, CapabilitiesResponse, GetForwardingPipelineConfigRequest,
        GetForwardingPipelineConfigResponse, ReadRequest, ReadResponse,
        SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse,
        StreamMessageRequest, StreamMessageResponse, WriteRequest, WriteResponse,
    },
    parse,
};

/// A message that is decoded from one piece of memory.
pub(crate) trait Whole: Message + Default {
    /// Decodes it.
    fn decode_whole(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::decode(bytes)
    }
}

impl Whole for WriteRequest {
    fn decode_whole(bytes: Bytes) -> Result<Self, DecodeError> {
        parse::write_request(&bytes).map_or_else(|| Self::decode(bytes), Ok)
    }
}

impl Whole for ReadRequest {
    fn decode_whole(bytes: Bytes) -> Result<Self, DecodeError> {
        parse::read_request(&bytes).map_or_else(|| Self::decode(bytes), Ok)
    }
}

impl Whole for CapabilitiesRequest {}
impl Whole for CapabilitiesResponse {}
impl Whole for GetForwardingPipelineConfigRequest {}
impl Whole for GetForwardingPipelineConfigResponse {}
impl Whole for ReadResponse {}
impl Whole for SetForwardingPipelineConfigRequest {}
impl Whole for SetForwardingPipelineConfigResponse {}
impl Whole for StreamMessageRequest {}
impl Whole for StreamMessageResponse {}
impl Whole for WriteResponse {}

/// Encodes messages of one type, and decodes those of another.
#[derive(Clone, Debug)]
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Whole + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = WholeEncoder<T>;
    type Decoder = WholeDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        WholeEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        WholeDecoder(PhantomData)
    }
}

/// Encodes messages of a type.
#[derive(Clone, Debug)]
pub(crate) struct WholeEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for WholeEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode_raw(buffer);
        Ok(())
    }
}

/// Decodes messages of a type.
#[derive(Clone, Debug)]
pub(crate) struct WholeDecoder<U>(PhantomData<U>);

impl<U: Whole> Decoder for WholeDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let whole = buffer.copy_to_bytes(buffer.remaining());
        // As gRPC has it, what cannot be decoded is an internal error.
        U::decode_whole(whole).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
