//! RQ-RMI: a learned index over sorted starts, with a certificate of its errors.
//!
//! A *range-query recursive model index* predicts the position of a key among sorted starts by a
//! few small nets. A net has one input, eight ReLU neurons and one output. The net of the first
//! stage chooses a net of the second stage, and so on. The net of the last stage predicts the
//! position. The starts around the prediction are then searched. The index needs 128 bytes per net,
//! independent of the number of starts.
//!
//! ```text
//!  key ──► [net] ──► one of [net net net net] ──► one of [net .. net] ──► position, error ──► search
//!         stage 0            stage 1                    stage 2
//! ```
//!
//! Source: *A Computational Approach to Packet Classification* (the index) and *Scaling Open vSwitch with a
//! Computational Cache* (fast training), both by Rashelbach, Rottenstreich and Silberstein.
//!
//! # Invariant
//!
//! *For each of the 2^32 keys, the searched window contains the position of the key.* This
//! invariant does not depend on the training. [`Model::certify`] computes the greatest errors of
//! the code that lookups run, including rounding. Only the result of this computation has a lookup:
//!
//! 1. A net is compiled to at most nine linear functions (`net`). Over the keys of one function the
//!    output is monotone, since each step of the evaluation is monotone.
//! 2. So a binary search over the keys finds where the output changes (`responsibility`). The
//!    result is the exact set of keys that reach each net.
//! 3. Between two keys of one start and one linear function, the error is greatest at one of these
//!    two keys. So two evaluations per start give the exact error (`certificate`).
//!
//! The bound of the papers is weaker: their code checks each range only at the first change of the
//! output after the start of the range. In a wide range the output changes more often, so errors
//! above the bound occur.
//!
//! ```
//! use shunt_nuevomatch::{
//!     StartIndex,
//!     rqrmi::{Model, TrainingSettings},
//! };
//!
//! let starts = (0..5000).map(|i| i * i * 9).collect();
//! let model = Model::train(starts, TrainingSettings::default())?;
//! let index = model.certify();
//! assert_eq!(index.find(9 * 70 * 70), 70);
//! assert_eq!(index.find(9 * 71 * 71 - 1), 70);
//! assert!(index.error_max() < 128);
//! # Ok::<(), shunt_nuevomatch::rqrmi::TrainingError>(())
//! ```

mod certificate;
mod certified_model;
mod knots;
mod model;
mod net;
mod neurons;
mod responsibility;
mod train;

pub use certificate::CertifiedError;
pub use certified_model::CertifiedModel;
pub use model::{Model, STARTS_MAX};
pub use train::TrainingSettings;

pub use crate::error::TrainingError;

pub(crate) use net::{KeyInterval, LinearFunction};
pub(crate) use responsibility::{Responsibility, position};

#[cfg(test)]
mod tests;
