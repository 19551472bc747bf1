//! Which traces are sent: OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.

/// Decides for a trace as a whole, so that none is sent in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Whether what a `traceparent` says of its trace decides, where there is one.
    pub parent_based: bool,
    /// What decides else.
    pub root: RootSampler,
}

/// What decides for a trace that begins here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootSampler {
    /// All of them.
    Always,
    /// None of them.
    Never,
    /// Those whose id is below a bound, of 2^63: [`RootSampler::ratio`].
    Below(u64),
}

impl RootSampler {
    /// So many of them, from 0 to 1. The rule is that of OpenTelemetry's SDKs (`trace/sampling.go`,
    /// `TraceIDRatioBased`), so that they and gospect decide alike.
    pub fn ratio(ratio: f64) -> Self {
        match ratio {
            ratio if ratio >= 1.0 => Self::Always,
            // Not a number too: nothing is sent that was not asked for.
            ratio if ratio > 0.0 => Self::Below((ratio * (1_u64 << 63) as f64) as u64),
            _ => Self::Never,
        }
    }

    fn takes(self, trace: u128) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Below(bound) => (trace as u64) >> 1 < bound,
        }
    }
}

impl Default for Sampler {
    /// `parentbased_always_on`, as the specification has it.
    fn default() -> Self {
        Self { parent_based: true, root: RootSampler::Always }
    }
}

impl Sampler {
    /// As the variables say, and what is wrong with them: then the default is taken, and of ratios 1.
    pub fn named(name: Option<&str>, argument: Option<&str>) -> (Self, Option<String>) {
        let Some(name) = name else { return (Self::default(), None) };
        let (parent_based, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let by = |root| Self { parent_based, root };
        match kind {
            "always_on" => (by(RootSampler::Always), None),
            "always_off" => (by(RootSampler::Never), None),
            "traceidratio" => {
                let ratio = argument.map(str::parse::<f64>);
                match ratio {
                    None => (by(RootSampler::Always), None),
                    Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => {
                        (by(RootSampler::ratio(ratio)), None)
                    }
                    Some(_) => {
                        let argument = argument.unwrap_or_default();
                        let told = format!(
                            "OTEL_TRACES_SAMPLER_ARG is `{argument}`, no number from 0 to 1: every trace is sent"
                        );
                        (by(RootSampler::Always), Some(told))
                    }
                }
            }
            _ => {
                let told = format!(
                    "OTEL_TRACES_SAMPLER `{name}` is not known here: parentbased_always_on is taken"
                );
                (Self::default(), Some(told))
            }
        }
    }

    /// Whether spans of a trace are sent. `parent` is what the `traceparent` that it came with says.
    pub fn takes(self, trace: u128, parent: Option<bool>) -> bool {
        match parent.filter(|_| self.parent_based) {
            Some(is_sampled) => is_sampled,
            None => self.root.takes(trace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, argument: &str) -> Sampler {
        let argument = Some(argument).filter(|text| !text.is_empty());
        let (sampler, warning) = Sampler::named(Some(name), argument);
        assert_eq!(warning, None, "{name} {argument:?}");
        sampler
    }

    /// Decisions without a parent, with one that is not sampled, and with one that is.
    fn decides(sampler: Sampler, trace: u128) -> [bool; 3] {
        [None, Some(false), Some(true)].map(|parent| sampler.takes(trace, parent))
    }

    #[test]
    fn a_parent_decides_where_the_name_says_so() {
        assert_eq!(decides(Sampler::default(), 1), [true, false, true]);
        assert_eq!(decides(named("always_on", ""), 1), [true; 3]);
        assert_eq!(decides(named("always_off", ""), 1), [false; 3]);
        assert_eq!(decides(named("parentbased_always_off", ""), 1), [false, false, true]);
        assert_eq!(decides(named("traceidratio", "0"), 1), [false; 3]);
        assert_eq!(decides(named("parentbased_traceidratio", "0"), 1), [false, false, true]);
        assert_eq!(decides(named("traceidratio", ""), 1), [true; 3]);
    }

    #[test]
    fn a_ratio_is_by_the_lower_half_of_the_id() {
        let half = named("traceidratio", "0.5");
        // The last bit of all says nothing, and neither do the upper 64.
        for (trace, taken) in [
            (0x7fff_ffff_ffff_ffff, true),
            (0x8000_0000_0000_0000, false),
            (0xffff_ffff_ffff_ffff_0000_0000_0000_0001, true),
            (0xffff_ffff_ffff_ffff, false),
        ] {
            assert_eq!(half.takes(trace, None), taken, "{trace:#x}");
        }
        let quarter = named("traceidratio", "0.25");
        assert!(quarter.takes(0x3fff_ffff_ffff_ffff, None));
        assert!(!quarter.takes(0x4000_0000_0000_0000, None));
        assert_eq!(RootSampler::ratio(f64::NAN), RootSampler::Never);
    }

    #[test]
    fn what_is_not_understood_is_told() {
        let (sampler, warning) = Sampler::named(Some("jaeger_remote"), None);
        assert_eq!(sampler, Sampler::default());
        assert!(warning.unwrap().contains("jaeger_remote"));
        for bad in ["2", "-0.1", "half", "nan"] {
            let (sampler, warning) = Sampler::named(Some("traceidratio"), Some(bad));
            assert_eq!(sampler, Sampler { parent_based: false, root: RootSampler::Always });
            assert!(warning.unwrap().contains(bad));
        }
        assert_eq!(Sampler::named(None, Some("0.5")), (Sampler::default(), None));
    }
}
