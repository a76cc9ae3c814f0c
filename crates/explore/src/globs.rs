//! Globs are read before anything is made: one that is none must not be found when it is first needed,
//! after an attempt's work.

use forkpoint_engine::glob_fault;
use forkpoint_model::Result;

use crate::codes;
use crate::spec::ExploreSpec;

/// What to do about one.
pub(crate) const HINT: &str = "put a backslash before a '[' or '{' that means itself";

/// Why an input of a preparation is no glob. One without a special character is a plain path.
pub fn input_fault(text: &str) -> Option<String> {
    let plain = !text.contains(['*', '?', '[', '{']);
    glob_fault(text).filter(|_| !plain)
}

impl ExploreSpec {
    pub(crate) fn check_globs(&self) -> Result<()> {
        let refuse = |what: &str, glob: &str, why: Option<String>| match why {
            Some(why) => Err(codes::SPEC
                .error(format!("{what} \"{glob}\" is not a glob: {why}"))
                .hint(HINT)),
            None => Ok(()),
        };
        for glob in self.prepare.iter().flat_map(|p| &p.inputs) {
            refuse("the preparation's input", glob, input_fault(glob))?;
        }
        for glob in &self.protect {
            refuse("the protected path", glob, glob_fault(glob))?;
        }
        for glob in &self.exclude {
            refuse("the excluded path", glob, glob_fault(glob))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{AttemptSpec, CommandLine};

    #[test]
    fn what_is_no_glob_is_refused_before_anything_is_made() {
        let spec = ExploreSpec {
            attempts: vec![AttemptSpec::new(CommandLine::Shell("x".into()))],
            ..ExploreSpec::default()
        };
        let refused = |spec: &ExploreSpec| spec.expand().unwrap_err().message;
        let protect = ExploreSpec {
            protect: vec!["a/**".into(), "[".into()],
            ..spec.clone()
        };
        assert!(refused(&protect).contains("protected path \"[\" is not a glob"));
        let exclude = ExploreSpec {
            exclude: vec!["{a".into()],
            ..spec
        };
        assert!(refused(&exclude).contains("excluded path \"{a\" is not a glob"));
        assert!(input_fault("a}b").is_none() && input_fault("a[").is_some());
    }
}
