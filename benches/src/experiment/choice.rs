//! Options of a single experiment, and the check of their values.

use shunt_flow::text::nearest_of;

/// An option of an experiment: comma-separated names, or a number.
#[derive(Debug)]
pub struct Choice {
    /// Name of the option.
    pub option: &'static str,
    /// Returns the legal values of the option.
    ///
    /// Without legal values, the value is a whole number above zero.
    pub names: fn() -> Vec<&'static str>,
}

impl Choice {
    /// Checks the value of the option.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        let (option, names) = (self.option, (self.names)());
        if names.is_empty() {
            let is_number = value.parse::<usize>().is_ok_and(|number| number > 0);
            return if is_number {
                Ok(())
            } else {
                Err(format!("{option} has the value `{value}`: give a whole number above zero"))
            };
        }
        let Some(wrong) = value.split(',').find(|name| !names.contains(name)) else {
            return Ok(());
        };
        let meant = nearest_of(wrong, names.iter().copied());
        let meant = meant.map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
        let names = names.join(", ");
        Err(format!("{option} has no value `{wrong}`{meant}; choose from {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_whole_number_above_zero() {
        let own = Choice { option: "--headers", names: Vec::new };
        assert_eq!(own.check("10000000"), Ok(()));
        for wrong in ["0", "-1", "1e7", "", "many"] {
            let error = own.check(wrong).unwrap_err();
            assert!(error.starts_with(&format!("--headers has the value `{wrong}`")), "{error}");
        }
    }
}
