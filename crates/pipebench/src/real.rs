//! Logarithm and exponential functions with equal results on every machine.
//!
//! The functions of the standard library call the platform, and differ in the last bits between
//! systems and releases. A different result in the last bit can change packets of a workload. The
//! functions here use only additions, multiplications and divisions, which IEEE 754 rounds uniquely
//! and Rust never contracts. A precision of about 15 digits is enough for distributions.

/// Returns the natural logarithm.
///
/// For arguments that are not positive and finite, returns the result of [`f64::ln`].
pub(crate) fn ln(value: f64) -> f64 {
    if !(value.is_normal() && value > 0.0) {
        return if value > 0.0 && value.is_finite() {
            // A subnormal number, scaled to a normal one.
            ln(value * TWO_TO_54) - 54.0 * LN_2
        } else if value == 0.0 {
            f64::NEG_INFINITY
        } else if value == f64::INFINITY {
            value
        } else {
            f64::NAN
        };
    }
    let bits = value.to_bits();
    let mut exponent = f64::from(u32::try_from(bits >> 52).unwrap_or(0)) - 1023.0;
    let mut fraction = f64::from_bits((bits & FRACTION) | ONE);
    if fraction > SQRT_2 {
        fraction *= 0.5;
        exponent += 1.0;
    }
    // ln f = 2 artanh s with |s| at most 0.172, so 11 terms are exact to the last bit.
    let s = (fraction - 1.0) / (fraction + 1.0);
    let square = s * s;
    let series =
        (0..=11_u32).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    exponent * LN_2 + 2.0 * s * series
}

/// Returns e to the power of a number; 0 or infinity out of range.
pub(crate) fn exp(value: f64) -> f64 {
    if value.is_nan() {
        return value;
    }
    if value > 709.0 {
        return f64::INFINITY;
    }
    if value < -708.0 {
        return 0.0;
    }
    let halves = (value / LN_2).round();
    let rest = (value - halves * LN_2_HIGH) - halves * LN_2_LOW;
    // |rest| is at most 0.347, so 14 terms are exact to the last bit.
    let series = (1..=14_u32).rev().fold(1.0, |sum, term| 1.0 + rest * sum / f64::from(term));
    #[expect(clippy::cast_possible_truncation, reason = "the value is between -1022 and 1023")]
    let exponent = halves as i64;
    #[expect(clippy::cast_sign_loss, reason = "a float stores its exponent plus 1023")]
    let scale = f64::from_bits(((exponent + 1023) as u64) << 52);
    series * scale
}

/// Returns a positive base to any power.
pub(crate) fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * ln(base))
}

/// The fraction bits of a double.
const FRACTION: u64 = (1 << 52) - 1;
/// The exponent bits of 1.0.
const ONE: u64 = 1023 << 52;
/// The factor that makes a subnormal number normal.
const TWO_TO_54: f64 = (1_u64 << 54) as f64;
const SQRT_2: f64 = std::f64::consts::SQRT_2;
const LN_2: f64 = std::f64::consts::LN_2;
/// The first 33 bits of ln 2, so that their product with an exponent is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
/// The bits of ln 2 after its first 33 bits.
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_close(ours: f64, theirs: f64) -> bool {
        ours == theirs || (ours - theirs).abs() <= 1e-14 * theirs.abs().max(1e-2)
    }

    proptest! {
        #[test]
        fn the_logarithm_nearly_equals_the_platform_library(value in 1e-320_f64..1e300) {
            prop_assert!(is_close(ln(value), value.ln()), "{} {}", ln(value), value.ln());
        }

        #[test]
        fn the_exponential_equals_the_platform_library(value in -700.0_f64..700.0) {
            let ratio = exp(value) / value.exp();
            prop_assert!((ratio - 1.0).abs() < 1e-13, "{value}: {ratio}");
        }
    }

    #[test]
    fn special_values_equal_the_platform_library() {
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert_eq!(ln(1.0), 0.0);
        assert!(ln(-1.0).is_nan() && ln(f64::NAN).is_nan() && exp(f64::NAN).is_nan());
        assert_eq!((exp(0.0), exp(1e9), exp(-1e9)), (1.0, f64::INFINITY, 0.0));
        assert!(is_close(pow(2.0, 0.5), SQRT_2) && is_close(pow(10.0, -3.0), 0.001));
    }

    #[test]
    fn bits_of_logarithms_and_powers_never_change() {
        let bits = [ln(3.0), ln(0.1), exp(1.0), exp(-2.5), pow(7.0, 0.9)].map(f64::to_bits);
        let expected = [
            4_607_626_529_066_517_258,
            13_835_739_416_338_191_637,
            4_613_303_445_314_885_482,
            4_590_579_268_170_609_701,
            4_618_173_677_494_691_964,
        ];
        assert_eq!(bits, expected);
    }
}
