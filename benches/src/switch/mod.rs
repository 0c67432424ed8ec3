//! The switches under test. Each switch is started as users start it, and has one small interface.

mod contender;
mod huge_pages;
mod open_vswitch;
mod shunt;
mod switch_trait;

pub(crate) use contender::output;
pub use contender::{Contender, is_root};
pub use open_vswitch::{Daemon, OpenVSwitch};
pub use shunt::{Shunt, ShuntCtl};
pub use switch_trait::{FrontCaches, PortSpec, Setup, Switch};
