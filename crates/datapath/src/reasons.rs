//! Reasons that are counted: enumerations of which each has a name in metrics and dumps.

macro_rules! reasons {
    (
        $(#[$about:meta])*
        $reason:ident {
            $($(#[$doc:meta])* $name:ident = $text:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $reason {
            $($(#[$doc])* $name,)*
        }

        impl $reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
            /// Number of them.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in metrics and dumps.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

pub(crate) use reasons;
