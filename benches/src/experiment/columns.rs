//! Layout of panels on a page: in one column, or in several if one column is too high.

use std::fmt::Write as _;

use super::plot::WIDTH;

/// A panel of a plot.
pub(super) struct Block {
    pub(super) body: String,
    pub(super) height: f64,
}

/// Page height above which panels are laid out in columns.
const HEIGHT_MAX: f64 = 1800.0;

/// Maximum number of columns.
const COLUMNS_MAX: u32 = 5;

/// Returns the position of each block, and the total width and height.
pub(super) fn arrange(heights: &[f64]) -> (Vec<(f64, f64)>, f64, f64) {
    let total: f64 = heights.iter().sum();
    let is_enough = |columns: &u32| total / f64::from(*columns) <= HEIGHT_MAX;
    let columns = (1..COLUMNS_MAX).find(is_enough).unwrap_or(COLUMNS_MAX);
    let tallest = heights.iter().copied().fold(0.0, f64::max);
    let mut limit = tallest.max(total / f64::from(columns));
    loop {
        let (places, width) = fill(heights, limit);
        if width <= f64::from(columns) * WIDTH {
            let bottoms = places.iter().zip(heights).map(|((_, y), height)| y + height);
            let height = bottoms.fold(0.0, f64::max);
            return (places, width, height);
        }
        limit *= 1.02;
    }
}

/// Fills columns of height `limit` from top to bottom.
///
/// Returns the positions and the total width.
fn fill(heights: &[f64], limit: f64) -> (Vec<(f64, f64)>, f64) {
    let (mut x, mut y) = (0.0, 0.0);
    let place = |height: &f64| {
        if y > 0.0 && y + height > limit {
            (x, y) = (x + WIDTH, 0.0);
        }
        let place = (x, y);
        y += height;
        place
    };
    let places = heights.iter().map(place).collect();
    (places, x + WIDTH)
}

/// Writes blocks below a header of height `head`;
/// returns the total width and height.
pub(super) fn put(body: &mut String, blocks: &[Block], head: f64) -> (f64, f64) {
    let heights: Vec<f64> = blocks.iter().map(|block| block.height).collect();
    let (places, width, height) = arrange(&heights);
    for (block, (x, y)) in blocks.iter().zip(places) {
        let y = y + head;
        let _ = write!(body, "<g transform=\"translate({x:.0},{y:.0})\">\n{}</g>\n", block.body);
    }
    (width, head + height)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many panels share at most [`COLUMNS_MAX`] columns of about equal height.
    #[test]
    fn few_panels_fill_one_column_many_fill_several() {
        let (places, width, height) = arrange(&[300.0, 500.0]);
        assert_eq!((places, width, height), (vec![(0.0, 0.0), (0.0, 300.0)], WIDTH, 800.0));
        for (count, panel) in [(30, 400.0), (7, 1500.0), (100, 130.0), (1, 9000.0)] {
            let heights = vec![panel; count];
            let (places, width, height) = arrange(&heights);
            assert_eq!(places.len(), count);
            let even = panel * count as f64 * WIDTH / width;
            assert!(height <= even + panel && width <= f64::from(COLUMNS_MAX) * WIDTH, "{count}");
            // No panel covers another panel, and each panel is within the page.
            for pair in places.windows(2) {
                let is_below = pair[1] == (pair[0].0, pair[0].1 + panel);
                assert!(is_below || pair[1] == (pair[0].0 + WIDTH, 0.0));
            }
            assert!(places.iter().all(|(x, y)| x + WIDTH <= width && y + panel <= height));
        }
        assert_eq!(arrange(&[]).1, WIDTH);
    }
}
