//! The gRPC codec: prost messages, decoded from one contiguous buffer.
//!
//! A request of a thousand entries has ten thousand values of a few bytes. Copying each value out
//! of the receive buffer costs an allocation, and sharing the buffer costs a reference count. The
//! codec therefore copies each message once as a whole. Long messages are decoded by
//! [`parse`](super::parse).

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

/// A message that is decoded from one contiguous buffer.
pub(crate) trait ContiguousMessage: Message + Default {
    /// Decodes the message from one buffer.
    fn decode_contiguous(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::decode(bytes)
    }
}

impl ContiguousMessage for WriteRequest {
    fn decode_contiguous(bytes: Bytes) -> Result<Self, DecodeError> {
        parse::write_request(&bytes).map_or_else(|| Self::decode(bytes), Ok)
    }
}

impl ContiguousMessage for ReadRequest {
    fn decode_contiguous(bytes: Bytes) -> Result<Self, DecodeError> {
        parse::read_request(&bytes).map_or_else(|| Self::decode(bytes), Ok)
    }
}

impl ContiguousMessage for CapabilitiesRequest {}
impl ContiguousMessage for CapabilitiesResponse {}
impl ContiguousMessage for GetForwardingPipelineConfigRequest {}
impl ContiguousMessage for GetForwardingPipelineConfigResponse {}
impl ContiguousMessage for ReadResponse {}
impl ContiguousMessage for SetForwardingPipelineConfigRequest {}
impl ContiguousMessage for SetForwardingPipelineConfigResponse {}
impl ContiguousMessage for StreamMessageRequest {}
impl ContiguousMessage for StreamMessageResponse {}
impl ContiguousMessage for WriteResponse {}

/// Encodes messages of type `T` and decodes messages of type `U`.
#[derive(Clone, Debug)]
pub(crate) struct MessageCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for MessageCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for MessageCodec<T, U>
where
    T: Message + Send + 'static,
    U: ContiguousMessage + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = MessageEncoder<T>;
    type Decoder = MessageDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        MessageEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        MessageDecoder(PhantomData)
    }
}

/// Encodes messages of one type.
#[derive(Clone, Debug)]
pub(crate) struct MessageEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for MessageEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode_raw(buffer);
        Ok(())
    }
}

/// Decodes messages of one type.
#[derive(Clone, Debug)]
pub(crate) struct MessageDecoder<U>(PhantomData<U>);

impl<U: ContiguousMessage> Decoder for MessageDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let whole = buffer.copy_to_bytes(buffer.remaining());
        // gRPC defines undecodable messages as internal errors.
        U::decode_contiguous(whole).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
