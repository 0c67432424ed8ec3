//! The choice of the points that a net interpolates before gradient descent.

use crate::rqrmi::net::NEURONS;

/// A key and the output that a net should have for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TrainingPoint {
    pub(crate) key: f64,
    /// The output that a net should have for the key.
    pub(crate) target: f64,
}

/// Returns at most nine of `points`; the lines between them are near all points.
///
/// The algorithm starts with the first and the last point. Each step adds the point that is
/// farthest from the lines. `points` must not be empty, and keys must be in ascending order.
pub(crate) fn knots(points: &[TrainingPoint]) -> Vec<TrainingPoint> {
    let last = points.len() - 1;
    let mut chosen = vec![0, last];
    chosen.dedup();
    // `farthest` has the farthest point of each line.
    let mut farthest: Vec<FarthestPoint> =
        chosen.windows(2).map(|ends| farthest_point(points, ends[0], ends[1])).collect();
    while chosen.len() <= NEURONS {
        let by_distance = |a: &(usize, &FarthestPoint), b: &(usize, &FarthestPoint)| {
            a.1.distance.total_cmp(&b.1.distance)
        };
        let Some((line, &FarthestPoint { index, distance })) =
            farthest.iter().enumerate().max_by(by_distance)
        else {
            break;
        };
        if distance <= 0.0 {
            break;
        }
        chosen.insert(line + 1, index);
        farthest[line] = farthest_point(points, chosen[line], index);
        farthest.insert(line + 1, farthest_point(points, index, chosen[line + 2]));
    }
    chosen.into_iter().map(|index| points[index]).collect()
}

/// A point, and its distance from a line.
#[derive(Clone, Copy, Debug)]
struct FarthestPoint {
    /// Distance of the target from the line.
    distance: f64,
    /// Index of the point.
    index: usize,
}

/// Returns the point between two points that is farthest from their line.
fn farthest_point(points: &[TrainingPoint], first: usize, last: usize) -> FarthestPoint {
    let (from, to) = (points[first], points[last]);
    let slope = (to.target - from.target) / (to.key - from.key);
    let mut farthest = FarthestPoint { distance: 0.0, index: first };
    for (index, point) in points.iter().enumerate().take(last).skip(first + 1) {
        let distance = (point.target - (from.target + slope * (point.key - from.key))).abs();
        if distance > farthest.distance {
            farthest = FarthestPoint { distance, index };
        }
    }
    farthest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns training points with some targets.
    fn points(targets: &[f64]) -> Vec<TrainingPoint> {
        let point =
            |(key, target): (usize, &f64)| TrainingPoint { key: key as f64, target: *target };
        targets.iter().enumerate().map(point).collect()
    }

    /// The slope of the targets changes at these points.
    #[test]
    fn corners_become_interpolation_points() {
        let points = points(&[0.0, 1.0, 2.0, 10.0, 18.0, 18.0, 18.0, 18.0]);
        let keys: Vec<f64> = knots(&points).iter().map(|knot| knot.key).collect();
        assert_eq!(keys, [0.0, 2.0, 4.0, 7.0]);
    }

    #[test]
    fn a_net_has_at_most_nine_points() {
        let square: Vec<f64> = (0..1000).map(|i| f64::from(i * i)).collect();
        assert_eq!(knots(&points(&square)).len(), 9);
        assert_eq!(knots(&points(&[5.0])).len(), 1);
        assert_eq!(knots(&points(&[5.0, 6.0])).len(), 2);
    }
}
