//! Finds connected groups of items, which occur in common steps.

/// Returns the items of all steps as connected groups.
///
/// Items of one step are connected, and so are items connected through other items.
pub(crate) fn connected<T: Ord + Clone>(steps: impl IntoIterator<Item = Vec<T>>) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for step in steps {
        if step.is_empty() {
            continue;
        }
        let meets = |group: &Vec<T>| group.iter().any(|one| step.contains(one));
        let (met, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(meets);
        let mut group: Vec<T> = met.into_iter().flatten().chain(step).collect();
        group.sort_unstable();
        group.dedup();
        groups = apart;
        groups.push(group);
    }
    groups.sort_unstable();
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn groups_are_connected_through_steps(
            steps in prop::collection::vec(prop::collection::vec(0_u8..12, 0..4), 0..10),
        ) {
            let groups = connected(steps.clone());
            for one in 0..12 {
                let mut reached = vec![one];
                for _ in 0..12 {
                    let met = steps.iter().filter(|step| step.iter().any(|n| reached.contains(n)));
                    let met: Vec<u8> = met.flatten().copied().collect();
                    reached.extend(met);
                }
                reached.sort_unstable();
                reached.dedup();
                let holding: Vec<_> = groups.iter().filter(|group| group.contains(&one)).collect();
                let is_named = steps.iter().flatten().any(|n| *n == one);
                prop_assert_eq!(holding, if is_named { vec![&reached] } else { vec![] });
            }
        }
    }
}
