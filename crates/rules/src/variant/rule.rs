//! Linux: none; how the table of rules (`variant.rs`) becomes types.
//! Differs: one line of the table is a field of [`super::Variant`] and of [`super::Diff`], and its documentation.

use units::Bytes;

/// A rule: a key of `[rules]` in a variant file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The rule's key, which is also the name of its field in [`Variant`].
    pub name: &'static str,
    /// The heading of the rule's section: its mechanism.
    pub section: &'static str,
    /// Effect of the rule if true, or the thing that it chooses, with the kernel's name for it.
    pub about: &'static str,
    /// The values that the rule takes.
    pub takes: Takes,
    /// When the rule can change.
    pub changes: Changes,
}

/// When a rule can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// At any instant: each decision reads it.
    AnyInstant,
    /// At boot alone: zones, lists, queues, threads or settings are built by the rule, or pages of the former rule would be
    /// stranded.
    AtBoot,
}

/// The values that a rule takes, and how a variant file writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// `true` or `false`.
    Switch,
    /// A whole number, from the smallest to the largest.
    Number(u64, u64),
    /// A size such as `512KiB`, from the smallest to the largest.
    Size(Bytes, Bytes),
    /// One of these words.
    Words(&'static [&'static str]),
}

impl Takes {
    /// The legal values in words, for an error message: `true or false`.
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Size(least, most) => format!("a size from \"{least}\" to \"{most}\""),
            Self::Words(words) => {
                format!("one of {}", words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Whether `text` is a legal value, without quotes.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Self::Switch => text.parse::<bool>().is_ok(),
            Self::Number(least, most) => text.parse().is_ok_and(|number| (least..=most).contains(&number)),
            Self::Size(least, most) => text.parse().is_ok_and(|size| (least..=most).contains(&size)),
            Self::Words(words) => words.contains(&text),
        }
    }
}

/// The type of a rule's value.
pub(super) trait Value: Copy + PartialEq {
    /// The value from its text in a variant file, without quotes.
    fn read(text: &str) -> Option<Self>;
    fn write(self) -> String;
}

/// A type whose values are all legal: numbers and sizes have a range in the table instead.
pub(super) trait Whole {
    const TAKES: Takes;
}

/// The table of rules: sections, each with a heading in brackets, of lines that are an effect, a name and a type; `where` and
/// the range of a number or a size; `=> AtBoot` where a boot alone changes it.
macro_rules! rules {
    (@takes $type:ty) => { <$type as Whole>::TAKES };
    (@takes $type:ty, $takes:expr) => { $takes };
    (@changes) => { Changes::AnyInstant };
    (@changes $when:ident) => { Changes::$when };
    ($(
        [$section:literal]
        $(#[doc = $about:literal] $(#[doc = $more:literal])* $rule:ident: $type:ty $(where $takes:expr)? $(=> $when:ident)?,)*
    )*) => {
        /// A kernel's rules as data: plain fields, read where a decision is made and never kept from one step to the next.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub struct Variant { $($(#[doc = $about] $(#[doc = $more])* pub $rule: $type,)*)* }

        /// The rules that a variant file sets.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Diff { $($($rule: Option<$type>,)*)* }

        impl Variant {
            /// Every rule, section by section.
            pub const RULES: &[Rule] =
                &[$($(Rule {
                    name: stringify!($rule),
                    section: $section,
                    about: $about.trim_ascii(),
                    takes: rules!(@takes $type $(, $takes)?),
                    changes: rules!(@changes $($when)?),
                },)*)*];

            /// Every rule with its value as a variant file says it, without quotes.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                vec![$($((stringify!($rule), self.$rule.write()),)*)*]
            }
        }

        impl Diff {
            /// Sets a rule to a value as a variant file says it, without quotes; false if there is no such rule, or if the
            /// rule does not take this value.
            #[must_use]
            pub fn set(&mut self, rule: &str, value: &str) -> bool {
                match rule {
                    $($(stringify!($rule) => {
                        let takes: Takes = rules!(@takes $type $(, $takes)?);
                        self.$rule = Value::read(value).filter(|_| takes.accepts(value));
                        self.$rule.is_some()
                    })*)*
                    _ => false,
                }
            }

            /// The rules that are set, with their values as a variant file says them.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                [$($((stringify!($rule), self.$rule.map(Value::write)),)*)*]
                    .into_iter().filter_map(|(rule, value)| Some((rule, value?))).collect()
            }

            /// The rules of `parent`, overridden by this difference.
            pub fn over(&self, parent: &Variant) -> Variant {
                Variant { $($($rule: self.$rule.unwrap_or(parent.$rule),)*)* }
            }

            /// The variant, if every rule is set; else the names of the missing rules.
            pub fn whole(&self) -> Result<Variant, Vec<&'static str>> {
                let missing: Vec<_> = [$($((stringify!($rule), self.$rule.is_none()),)*)*]
                    .into_iter().filter_map(|(rule, missing)| missing.then_some(rule)).collect();
                match *self {
                    Self { $($($rule: Some($rule),)*)* } => Ok(Variant { $($($rule,)*)* }),
                    _ => Err(missing),
                }
            }
        }
    };
}

pub(super) use rules;
