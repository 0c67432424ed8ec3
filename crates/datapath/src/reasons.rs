//! A macro for enumerations of counted reasons, with their names in metrics and dumps.

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
            /// All reasons of this kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
            /// Number of reasons of this kind.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the name of the reason in metrics and dumps.
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
