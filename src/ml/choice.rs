// SPDX-License-Identifier: GPL-2.0-only
//! Which model policies go by: the one that the user names, or that of this machine.

use std::path::Path;

use anyhow::{Context, Result};
use log::{info, warn};

use crate::ml::model::{Model, RankBy};
use crate::topology::{CoreTypesSpec, Identity, Topology, cpu_name};

/// Reads the model that the user named, or the one that lies at `default`. If that one is of no use
/// it is told of, and nothing else: the service must start all the same. One that is to be learnt
/// need not be there yet.
///
/// # Errors
/// The model that the user named cannot be used, or not here.
pub(crate) fn choose(
    named: Option<&Path>,
    default: &Path,
    core_types: Option<&CoreTypesSpec>,
    learn: bool,
) -> Result<Option<Model>> {
    let path = named.unwrap_or(default);
    if (named.is_none() || learn) && !path.exists() {
        info!(
            "no model {}: core types are worth their capacities until more is measured",
            path.display()
        );
        return Ok(None);
    }
    match read(path, core_types) {
        Err(error) if named.is_none() => {
            warn!("{error:#}; going on without a model");
            Ok(None)
        }
        model => model.map(Some),
    }
}

fn read(path: &Path, core_types: Option<&CoreTypesSpec>) -> Result<Model> {
    let model = Model::read(path)?;
    let topology = Topology::detect(core_types).context("cannot make out the CPUs' core types")?;
    model
        .check_machine(&Identity::of(&topology, cpu_name()))
        .with_context(|| format!("cannot use the model {}", path.display()))?;
    info!(
        "SFs by the model {}, learnt from {} measurements of {} programs",
        path.display(),
        model.data.rows,
        model.data.programs.len()
    );
    if model.rank_by == RankBy::Classifier {
        warn!(
            "its classifier is right more often than its SFs, by which threads are ranked all the \
             same"
        );
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const VIRTUAL: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/models/virtual-alder-lake-4p4e.model.json"
    );

    #[test]
    fn a_named_model_of_another_machine_is_refused_and_one_that_lies_there_is_left_alone() {
        let path = Path::new(VIRTUAL);
        let error = format!("{:#}", choose(Some(path), path, None, false).unwrap_err());
        assert!(
            error.contains("another machine") && error.contains(VIRTUAL),
            "{error}"
        );
        assert_eq!(choose(None, path, None, false).unwrap(), None);
    }

    #[test]
    fn a_model_that_is_not_there_or_damaged_is_refused_if_it_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.json");
        let named = || format!("{:#}", choose(Some(&path), &path, None, false).unwrap_err());
        assert!(named().contains("model.json"), "{}", named());
        let to_be_learnt = choose(Some(&path), &path, None, true);
        assert_eq!(to_be_learnt.unwrap(), None);
        assert_eq!(choose(None, &path, None, false).unwrap(), None);
        let text = fs::read_to_string(VIRTUAL).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(named().contains("cut short"), "{}", named());
        assert_eq!(choose(None, &path, None, false).unwrap(), None);
    }
}
