//! The text of meters: `ovs-ofctl add-meter`, `dump-meters`.
//!
//! A meter is one list of items. `bands=` begins the list of its bands, and each `type=` begins a
//! band: `meter=1,kbps,burst,bands=type=drop,rate=100,burst_size=50`. A dump has a line for the
//! meter and one for each band, and parses to the same meter.

use super::{
    RuleTextError, RuleTextProblem,
    number::{meter, parse_as},
    slice::{Item, TextSlice},
};
use crate::{
    id::MeterId,
    meters::meter::{MeterBand, MeterBandKind, MeterCommand, MeterConfig, MeterMod, MeterUnit},
};

/// Reads a meter, or a selection of meters to delete, as `ovs-ofctl` does.
///
/// ```
/// use shunt_pipeline::{MeterCommand, text};
///
/// let meter = text::parse_meter_mod(MeterCommand::Add, "meter=1,kbps,bands=type=drop,rate=100")?;
/// assert_eq!(meter.config.bands[0].rate, 100);
/// # Ok::<(), text::RuleTextError>(())
/// ```
///
/// # Errors
///
/// The error has the problem and its position in `text`.
pub fn parse_meter_mod(command: MeterCommand, text: &str) -> Result<MeterMod, RuleTextError> {
    let whole = TextSlice::whole(text);
    let mut draft = MeterDraft::default();
    for item in whole.items() {
        draft.add(item?, command)?;
    }
    draft.finish(whole, command)
}

/// Prints a meter as `ovs-ofctl dump-meters` does.
///
/// The text has a line for the meter, and one for each band.
#[must_use]
pub fn format_meter(id: MeterId, config: &MeterConfig) -> String {
    let unit = match config.unit {
        MeterUnit::Kilobits => "kbps",
        MeterUnit::Packets => "pktps",
    };
    let mut text = format!("meter={id} {unit} ");
    let flags = [(config.burst, "burst "), (config.stats, "stats ")];
    text.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name));
    text += "bands=";
    for band in &config.bands {
        let kind = match band.kind {
            MeterBandKind::Drop => "drop",
            MeterBandKind::DscpRemark { .. } => "dscp_remark",
        };
        text += &format!("\ntype={kind} rate={}", band.rate);
        if config.burst {
            text += &format!(" burst_size={}", band.burst_size);
        }
        if let MeterBandKind::DscpRemark { precedence } = band.kind {
            text += &format!(" prec_level={precedence}");
        }
    }
    text
}

/// A meter with the items read so far.
#[derive(Default)]
struct MeterDraft<'a> {
    /// The id; `None` until `meter` is read.
    meter: Option<MeterId>,
    /// The unit; `None` until a flag selects one.
    unit: Option<MeterUnit>,
    /// True after the flag `burst`.
    burst: bool,
    /// True after the flag `stats`.
    stats: bool,
    /// The bands; `None` until `bands` is read.
    bands: Option<Vec<BandDraft<'a>>>,
}

/// A band with the items read so far.
struct BandDraft<'a> {
    /// The text of the band.
    at: TextSlice<'a>,
    /// True for `dscp_remark`, false for `drop`.
    remarks: bool,
    /// The rate in the unit of the meter; `None` until it is read.
    rate: Option<u32>,
    /// The burst size with its text; `None` if the text has none.
    burst_size: Option<(TextSlice<'a>, u32)>,
    /// The precedence level with its text; `None` if the text has none.
    precedence: Option<(TextSlice<'a>, u8)>,
}

impl<'a> MeterDraft<'a> {
    /// Parses one item of the text of a meter.
    fn add(&mut self, item: Item<'a>, command: MeterCommand) -> Result<(), RuleTextError> {
        let value = item.argument_or_end();
        let name = item.name.text();
        if name == "meter" && self.bands.is_none() {
            self.meter = match (value.text(), command) {
                ("all", MeterCommand::Delete) => None,
                _ => Some(meter(value)?),
            };
            return Ok(());
        }
        if command == MeterCommand::Delete {
            return Err(item.name.bad("a deletion of meters", "meter=ID or meter=all"));
        }
        match (name, &mut self.bands) {
            ("bands" | "band", None) => {
                let bands = self.bands.insert(Vec::new());
                value.items().try_for_each(|item| add_to_band(bands, item?))
            }
            (_, Some(bands)) => add_to_band(bands, item),
            (_, None) => self.setting(item),
        }
    }

    /// Reads an item before the bands.
    fn setting(&mut self, item: Item<'a>) -> Result<(), RuleTextError> {
        match item.name.text() {
            "kbps" => self.set_unit(item, "kbps", MeterUnit::Kilobits),
            "pktps" => self.set_unit(item, "pktps", MeterUnit::Packets),
            "burst" => {
                self.burst = true;
                item.no_argument("burst")
            }
            "stats" => {
                self.stats = true;
                item.no_argument("stats")
            }
            _ => Err(item.name.bad("meter", METER_FORM)),
        }
    }

    /// Sets the unit of the rates, which may be given once.
    fn set_unit(
        &mut self,
        item: Item<'a>,
        name: &'static str,
        unit: MeterUnit,
    ) -> Result<(), RuleTextError> {
        match self.unit.replace(unit) {
            Some(other) if other != unit => Err(item.name.bad("meter", "either kbps or pktps")),
            _ => item.no_argument(name),
        }
    }

    /// Checks the items together, and returns the request.
    fn finish(
        self,
        whole: TextSlice<'a>,
        command: MeterCommand,
    ) -> Result<MeterMod, RuleTextError> {
        let incomplete =
            |missing| whole.error(RuleTextProblem::Incomplete { of: "a meter", missing });
        let (burst, stats) = (self.burst, self.stats);
        if command == MeterCommand::Delete {
            let (unit, bands) = (MeterUnit::Kilobits, Box::default());
            let config = MeterConfig { unit, burst, stats, bands };
            return Ok(MeterMod { command, meter: self.meter, config });
        }
        let meter = self.meter.ok_or_else(|| incomplete("meter=ID"))?;
        let unit = self.unit.ok_or_else(|| incomplete("kbps or pktps"))?;
        let bands = self.bands.ok_or_else(|| incomplete("bands=type=drop,rate=RATE"))?;
        let bands = bands.into_iter().map(|band| band.finish(burst)).collect::<Result<_, _>>()?;
        let config = MeterConfig { unit, burst, stats, bands };
        Ok(MeterMod { command, meter: Some(meter), config })
    }
}

/// Parses one item of the last band.
fn add_to_band<'a>(bands: &mut Vec<BandDraft<'a>>, item: Item<'a>) -> Result<(), RuleTextError> {
    let value = item.argument_or_end();
    if item.name.text() == "type" {
        let remarks = match value.text() {
            "drop" => false,
            "dscp_remark" => true,
            _ => return Err(value.bad("band", "type=drop or type=dscp_remark")),
        };
        let (rate, burst_size, precedence) = (None, None, None);
        bands.push(BandDraft { at: item.name, remarks, rate, burst_size, precedence });
        return Ok(());
    }
    let band = bands.last_mut().ok_or_else(|| item.name.bad("band", BAND_FORM))?;
    match item.name.text() {
        "rate" => band.rate = Some(parse_as(value, "a rate", u32::MAX)?),
        "burst_size" => {
            band.burst_size = Some((item.name, parse_as(value, "a burst", u32::MAX)?));
        }
        "prec_level" => {
            band.precedence = Some((item.name, parse_as(value, "a precedence", u8::MAX)?));
        }
        _ => return Err(item.name.bad("band", BAND_FORM)),
    }
    Ok(())
}

impl BandDraft<'_> {
    /// Checks the items together, and returns the band.
    fn finish(self, has_bursts: bool) -> Result<MeterBand, RuleTextError> {
        let incomplete =
            |missing| self.at.error(RuleTextProblem::Incomplete { of: "this band", missing });
        let rate = self.rate.filter(|rate| *rate != 0);
        let rate = rate.ok_or_else(|| incomplete("rate=RATE, which is not 0"))?;
        let burst_size = match self.burst_size {
            Some((at, _)) if !has_bursts => {
                return Err(at.bad("band", "burst among the flags of the meter too"));
            }
            None if has_bursts => {
                return Err(incomplete("burst_size=SIZE, as the meter has burst"));
            }
            burst_size => burst_size.map_or(0, |(_, size)| size),
        };
        let kind = match (self.remarks, self.precedence) {
            (false, None) => MeterBandKind::Drop,
            (true, Some((_, precedence))) => MeterBandKind::DscpRemark { precedence },
            (true, None) => return Err(incomplete("prec_level=LEVELS")),
            (false, Some((at, _))) => {
                return Err(at.bad("band", "prec_level in bands of type=dscp_remark only"));
            }
        };
        Ok(MeterBand { kind, rate, burst_size })
    }
}

/// The form of a meter, for error messages.
const METER_FORM: &str =
    "meter=ID,kbps or pktps,burst,stats,bands=type=drop,rate=RATE,burst_size=SIZE";
/// The form of a band, for error messages.
const BAND_FORM: &str = "type=drop,rate=RATE or type=dscp_remark,rate=RATE,prec_level=LEVELS";
