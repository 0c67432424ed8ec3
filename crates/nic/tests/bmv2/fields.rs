//! The headers and metadata of one packet by the names of the program.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The fields of each header of the program in order, with their widths in bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) headers: BTreeMap<String, Vec<(String, u32)>>,
    metadata: BTreeSet<String>,
}

/// The names of a header and of one of its fields.
pub(crate) type Name = (String, String);

impl Layout {
    pub(crate) fn of(program: &Value) -> Self {
        let mut layout = Self::default();
        for header in list(&program["headers"]) {
            let types = list(&program["header_types"]);
            let kind = types.iter().find(|kind| kind["name"] == header["header_type"]).unwrap();
            let fields = list(&kind["fields"]).iter();
            let fields = fields.map(|field| (text(&field[0]), field[1].as_u64().unwrap() as u32));
            layout.headers.insert(text(&header["name"]), fields.collect());
            if header["metadata"] == true {
                layout.metadata.insert(text(&header["name"]));
            }
        }
        layout
    }

    pub(crate) fn width(&self, (header, field): &Name) -> u32 {
        let found = self.headers[header].iter().find(|(name, _)| name == field);
        found.unwrap_or_else(|| panic!("{header} has no {field}")).1
    }
}

/// The headers and metadata of a packet; unwritten fields are zero.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) layout: &'a Layout,
    values: BTreeMap<Name, u128>,
    valid: BTreeSet<String>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(layout: &'a Layout) -> Self {
        Self { layout, values: BTreeMap::new(), valid: layout.metadata.clone() }
    }

    pub(crate) fn is_valid(&self, header: &str) -> bool {
        self.valid.contains(header)
    }

    pub(crate) fn add(&mut self, header: &str) {
        self.valid.insert(header.to_owned());
    }

    pub(crate) fn remove(&mut self, header: &str) {
        self.valid.remove(header);
    }

    /// Returns the value of a field. The value of an invalid header is undefined.
    pub(crate) fn read(&self, name: &Name) -> u128 {
        if name.1 == "$valid$" {
            return self.is_valid(&name.0).into();
        }
        assert!(self.is_valid(&name.0), "{name:?} is read of a header that is not there");
        self.layout.width(name);
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Sets a field, and truncates the value to its width.
    pub(crate) fn write(&mut self, name: &Name, value: u128) {
        assert!(self.is_valid(&name.0), "{name:?} is written of a header that is not there");
        self.values.insert(name.clone(), value & ones(self.layout.width(name)));
    }

    /// Extracts a header from the start of `bytes`; `None` if `bytes` is too short.
    pub(crate) fn extract<'b>(&mut self, header: &str, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let fields = &self.layout.headers[header];
        let bits: u32 = fields.iter().map(|(_, width)| width).sum();
        let (taken, rest) = bytes.split_at_checked(bits as usize / 8)?;
        let mut bits = taken.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        self.add(header);
        for (field, width) in fields {
            let value = bits.by_ref().take(*width as usize);
            let value = value.fold(0, |value: u128, bit| value << 1 | u128::from(bit));
            self.values.insert((header.to_owned(), field.clone()), value);
        }
        Some(rest)
    }

    /// Returns the bytes of a header.
    pub(crate) fn emit(&self, header: &str) -> Vec<u8> {
        let fields = self.layout.headers[header].iter();
        let bits = fields.flat_map(|(field, width)| {
            let value = self.read(&(header.to_owned(), field.clone()));
            (0..*width).rev().map(move |bit| (value >> bit & 1) as u8)
        });
        let bits: Vec<u8> = bits.collect();
        bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | bit)).collect()
    }
}

pub(crate) const fn ones(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Returns the name of the field that a JSON value of type `field` refers to.
pub(crate) fn name(value: &Value) -> Name {
    (text(&value[0]), text(&value[1]))
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}
