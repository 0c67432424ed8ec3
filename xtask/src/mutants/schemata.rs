//! A source file with all its mutants, each inactive until its number is selected.
//!
//! Building a program once per mutant takes days. Here the program is built once for all mutants,
//! as in Untch, Offutt and Harrold, *Mutation analysis using mutant schemata*. Each mutated place
//! calls `crate::mutant(NUMBER)` to determine whether the mutant is active. Every line keeps its
//! number.
//!
//! | mutation | generated code |
//! | --- | --- |
//! | a function returns a simple value | `if mutant(1) { return None; }` is the first statement |
//! | an operator is replaced | both operands are bound, and then one of both operators is used |
//! | a condition is negated | `(condition) != mutant(1)` |
//! | a match guard is always true, or always false | `mutant(1) || !mutant(2) && guard` |
//! | a match arm before a wildcard is removed | `pattern if !mutant(1)` |
//! | a statement is removed | `if !mutant(1) { statement; }` |
//!
//! Code that is evaluated at compile time cannot call `mutant`, so constants are not mutated.
//! Functions lose `const` if no constant needs it. Macros are opaque. Tests and `Debug` are not
//! mutated.

use std::{collections::BTreeSet, ops::Range};

use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, Pat, ReturnType, Signature, Stmt, Type, UnOp,
    spanned::Spanned,
    visit::{self, Visit},
};

use super::{
    edits::Edit,
    values::{is_iterator, values},
};

/// One mutation of the source.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    pub(super) line: usize,
    pub(super) function: String,
    /// The change, in words and source text.
    pub(super) what: String,
}

/// Mutations that are omitted because the code with them did not build.
#[derive(Default)]
pub(super) struct OmittedMutants {
    pub(super) mutants: BTreeSet<usize>,
    /// Functions that constants call.
    pub(super) consts: BTreeSet<String>,
}

/// Visits a file and collects its mutants, numbered from `first`.
pub(super) struct Schemata<'s> {
    source: &'s str,
    dropped: &'s OmittedMutants,
    first: usize,
    functions: Vec<String>,
    pub(super) mutants: Vec<Mutant>,
    pub(super) edits: Vec<Edit>,
}

impl<'s> Schemata<'s> {
    /// Returns the mutants of a file that parses.
    pub(super) fn of(
        source: &'s str,
        first: usize,
        dropped: &'s OmittedMutants,
    ) -> syn::Result<Self> {
        let file = syn::parse_file(source)?;
        let (functions, mutants, edits) = Default::default();
        let mut schemata = Self { source, dropped, first, functions, mutants, edits };
        schemata.visit_file(&file);
        Ok(schemata)
    }

    /// Assigns a number to a mutant; returns `None` if the mutant is omitted.
    fn mutant(&mut self, at: &Range<usize>, what: String) -> Option<usize> {
        let id = self.first + self.mutants.len();
        let before = self.source.get(..at.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        self.mutants.push(Mutant { line, function: self.functions.join("::"), what });
        (!self.dropped.mutants.contains(&id)).then_some(id)
    }

    fn text(&self, bytes: &Range<usize>) -> &'s str {
        self.source.get(bytes.clone()).unwrap_or_default()
    }

    /// Returns source text shortened to one line.
    fn shorten(&self, bytes: &Range<usize>) -> String {
        let words: Vec<&str> = self.text(bytes).split_whitespace().collect();
        let text = words.join(" ").replace('|', "¦");
        if text.chars().count() <= TEXT_MAX {
            return format!("`{text}`");
        }
        format!("`{}…`", text.chars().take(TEXT_MAX).collect::<String>())
    }

    /// Adds text before and after a mutated place.
    fn wrap(
        &mut self,
        mutants: Vec<usize>,
        before: Edit,
        after: Edit,
        inside: impl FnOnce(&mut Self),
    ) {
        self.edits.push(Edit { begins: mutants.clone(), ..before });
        inside(self);
        self.edits.push(Edit { ends: mutants, ..after });
    }

    fn function(&mut self, name: String, signature: &Signature, block: &Block) {
        self.functions.push(name);
        if let Some(word) = &signature.constness {
            let bytes = word.span.byte_range();
            if self.dropped.consts.contains(&signature.ident.to_string()) {
                self.functions.pop();
                return;
            }
            self.edits.push(Edit::instead(bytes.clone(), " ".repeat(bytes.len())));
        }
        self.body(signature, block);
        self.functions.pop();
    }

    fn body(&mut self, signature: &Signature, block: &Block) {
        let unit = Type::Tuple(syn::TypeTuple {
            paren_token: syn::token::Paren::default(),
            elems: syn::punctuated::Punctuated::new(),
        });
        let ty = match &signature.output {
            ReturnType::Default => &unit,
            ReturnType::Type(_, ty) => ty,
        };
        let braces = block.brace_token.span;
        let (open, close) = (braces.open().byte_range(), braces.close().byte_range());
        let inner = self.text(&(open.end..close.start)).trim().to_owned();
        if is_iterator(ty) {
            let id = self.mutant(&open, "returns an empty iterator".to_owned());
            if let Some(id) = id {
                let after = format!("}}.into_iter().filter(|_| !crate::mutant({id}))");
                let (before, after) = (Edit::at(open.end, "{"), Edit::at(close.start, after));
                return self.wrap(vec![id], before, after, |own| own.visit_block(block));
            }
        } else if !inner.is_empty() && !CONSTRUCTORS.contains(&signature.ident.to_string().as_str())
        {
            let mut edit = Edit::at(open.end, "");
            for value in values(ty).into_iter().filter(|value| *value != inner) {
                if let Some(id) = self.mutant(&open, format!("returns `{value}`")) {
                    let before = format!(" if crate::mutant({id}) {{ return ");
                    edit.push_variant(&before, &value, "; }", id);
                }
            }
            self.edits.push(edit);
        }
        match block.stmts.as_slice() {
            // Removing the only statement has the same effect as returning immediately.
            [alone] if inner.ends_with(';') => self.visit_stmt(alone),
            _ => self.visit_block(block),
        }
    }

    /// Mutates a comparison, which borrows both sides, or arithmetic,
    /// which moves both sides.
    fn operator(&mut self, binary: &ExprBinary, others: &[&str]) {
        let (op, bytes) = (binary.op.span().byte_range(), binary.span().byte_range());
        let is_comparison = matches!(
            binary.op,
            BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_)
        );
        let (borrow, deref) = if is_comparison { ("&", "*") } else { ("", "") };
        let mut after = Edit::at(bytes.end, ")) { (l__, r__) =>");
        let mut ids = Vec::new();
        for other in others {
            let what = format!("`{other}` in {}", self.shorten(&bytes));
            if let Some(id) = self.mutant(&bytes, what) {
                let variant = format!("{deref}l__ {other} {deref}r__");
                after.push_variant(
                    &format!(" if crate::mutant({id}) {{ "),
                    &variant,
                    " } else",
                    id,
                );
                ids.push(id);
            }
        }
        if ids.is_empty() {
            return visit::visit_expr_binary(self, binary);
        }
        let own = self.text(&op);
        after.text.push_str(&format!(" {{ {deref}l__ {own} {deref}r__ }} }})"));
        let before = Edit::at(bytes.start, format!("(match ({borrow}("));
        self.wrap(ids, before, after, |schemata| {
            schemata.visit_expr(&binary.left);
            schemata.edits.push(Edit::instead(op, format!("), {borrow}(")));
            schemata.visit_expr(&binary.right);
        });
    }

    /// Mutates `&&` or `||`.
    ///
    /// The second operand determines the result if the first operand is `true`, or `false`.
    fn connective(&mut self, binary: &ExprBinary, other: &str, sign: &str) {
        let (op, bytes) = (binary.op.span().byte_range(), binary.span().byte_range());
        let what = format!("`{other}` in {}", self.shorten(&bytes));
        let Some(id) = self.mutant(&bytes, what) else {
            return visit::visit_expr_binary(self, binary);
        };
        let (before, after) = ("({ let l__ = ", " } else { l__ } })");
        let (before, after) = (Edit::at(bytes.start, before), Edit::at(bytes.end, after));
        self.wrap(vec![id], before, after, |schemata| {
            schemata.visit_expr(&binary.left);
            let text = format!("; if l__ {sign} crate::mutant({id}) {{ ");
            schemata.edits.push(Edit::instead(op, text));
            schemata.visit_expr(&binary.right);
        });
    }

    /// Mutates `+=` and similar operators.
    fn assignment(&mut self, binary: &ExprBinary, others: &[&str]) {
        let bytes = binary.span().byte_range();
        let (left, right) = (binary.left.span().byte_range(), binary.right.span().byte_range());
        let mut before = Edit::at(bytes.start, "(");
        let mut ids = Vec::new();
        for other in others {
            let what = format!("`{other}` in {}", self.shorten(&bytes));
            if let Some(id) = self.mutant(&bytes, what) {
                let variant = format!("{} {other} {}", self.text(&left), self.text(&right));
                let variant = variant.replace('\n', " ");
                before.push_variant(
                    &format!("if crate::mutant({id}) {{ "),
                    &variant,
                    " } else ",
                    id,
                );
                ids.push(id);
            }
        }
        if ids.is_empty() {
            return visit::visit_expr_binary(self, binary);
        }
        before.text.push('{');
        let after = Edit::at(bytes.end, "})");
        self.wrap(ids, before, after, |own| visit::visit_expr_binary(own, binary));
    }

    /// Mutates a condition without an operator.
    fn condition(&mut self, condition: &Expr) {
        let is_kept =
            matches!(condition, Expr::Let(_) | Expr::Binary(_) | Expr::Unary(_) | Expr::Lit(_));
        let bytes = condition.span().byte_range();
        let id = if is_kept {
            None
        } else {
            let what = format!("not {}", self.shorten(&bytes));
            self.mutant(&bytes, what)
        };
        let Some(id) = id else { return self.visit_expr(condition) };
        let after = Edit::at(bytes.end, format!(") != crate::mutant({id}))"));
        self.wrap(vec![id], Edit::at(bytes.start, "(("), after, |own| {
            own.visit_expr(condition);
        });
    }

    fn guard(&mut self, guard: &Expr) {
        if has_let(guard) {
            return self.visit_expr(guard);
        }
        let bytes = guard.span().byte_range();
        let mut before = Edit::at(bytes.start, "(");
        let mut ids = Vec::new();
        for (held, text) in [("always", " || "), ("never", "")] {
            let what = format!("{held} {}", self.shorten(&bytes));
            if let Some(id) = self.mutant(&bytes, what) {
                let not = if held == "never" { "!" } else { "" };
                let and = if held == "never" { " && " } else { text };
                before.text.push_str(&format!("{not}crate::mutant({id}){and}"));
                ids.push(id);
            }
        }
        before.text.push('(');
        let after = Edit::at(bytes.end, "))");
        self.wrap(ids, before, after, |own| own.visit_expr(guard));
    }

    /// Mutates a statement with side effects only.
    fn statement(&mut self, statement: &Stmt) {
        let bytes = statement.span().byte_range();
        let what = format!("without {}", self.shorten(&bytes));
        let Some(id) = self.mutant(&bytes, what) else { return self.visit_stmt(statement) };
        let before = Edit::at(bytes.start, format!("if !crate::mutant({id}) {{ "));
        let after = Edit::at(bytes.end, " }");
        self.wrap(vec![id], before, after, |own| own.visit_stmt(statement));
    }
}

impl<'ast> Visit<'ast> for Schemata<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_skipped(&item.attrs) {
            self.function(item.sig.ident.to_string(), &item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_skipped(&item.attrs) {
            self.function(item.sig.ident.to_string(), &item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = item.default.as_ref().filter(|_| !is_skipped(&item.attrs)) {
            self.function(item.sig.ident.to_string(), &item.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if is_skipped(&item.attrs)
            || of.is_some_and(|of| UNTRIED.iter().any(|name| of.ident == name))
        {
            return;
        }
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.functions.extend(name.clone());
        item.items.iter().for_each(|item| self.visit_impl_item(item));
        if name.is_some() {
            self.functions.pop();
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_skipped(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        for statement in &block.stmts {
            match statement {
                Stmt::Expr(
                    Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) | Expr::Try(_),
                    Some(_),
                ) => self.statement(statement),
                Stmt::Expr(Expr::Binary(binary), Some(_)) if is_assignment(binary) => {
                    self.statement(statement);
                }
                _ => self.visit_stmt(statement),
            }
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if has_let(&binary.left) || has_let(&binary.right) {
            return visit::visit_expr_binary(self, binary);
        }
        match &binary.op {
            BinOp::And(_) => self.connective(binary, "||", "!="),
            BinOp::Or(_) => self.connective(binary, "&&", "=="),
            op if is_assignment(binary) => self.assignment(binary, other_operators(op)),
            op => self.operator(binary, other_operators(op)),
        }
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let (op, bytes) = (unary.op.span().byte_range(), unary.span().byte_range());
        let is_tried = matches!(unary.op, UnOp::Not(_))
            || matches!(unary.op, UnOp::Neg(_)) && !matches!(*unary.expr, Expr::Lit(_));
        let own = self.text(&op);
        let id = if is_tried {
            let what = format!("without `{own}` in {}", self.shorten(&bytes));
            self.mutant(&bytes, what)
        } else {
            None
        };
        let Some(id) = id else { return visit::visit_expr_unary(self, unary) };
        let mut after = Edit::at(bytes.end, ") { l__ => if ");
        after.push_variant(&format!("crate::mutant({id}) {{ "), "l__", " } else", id);
        after.text.push_str(&format!(" {{ {own}l__ }} }})"));
        let before = Edit::instead(op, "(match (");
        self.wrap(vec![id], before, after, |own| own.visit_expr(&unary.expr));
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        self.condition(&branch.cond);
        self.visit_block(&branch.then_branch);
        if let Some((_, other)) = &branch.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, repeated: &'ast syn::ExprWhile) {
        self.condition(&repeated.cond);
        self.visit_block(&repeated.body);
    }

    fn visit_expr_match(&mut self, matched: &'ast syn::ExprMatch) {
        self.visit_expr(&matched.expr);
        let is_wild = |arm: &syn::Arm| match &arm.pat {
            Pat::Wild(_) => arm.guard.is_none(),
            // A name that is not a variant.
            Pat::Ident(name) => {
                arm.guard.is_none() && name.ident.to_string().starts_with(char::is_lowercase)
            }
            _ => false,
        };
        let has_wild = matched.arms.last().is_some_and(is_wild);
        for (index, arm) in matched.arms.iter().enumerate() {
            let pattern = arm.pat.span().byte_range();
            if let Some((_, guard)) = &arm.guard {
                self.guard(guard);
            } else if has_wild && index + 1 < matched.arms.len() {
                let what = format!("without the arm {}", self.shorten(&pattern));
                if let Some(id) = self.mutant(&pattern, what) {
                    let text = format!(" if !crate::mutant({id})");
                    let end = text.len();
                    let edit = Edit::at(pattern.end, text);
                    self.edits.push(Edit { variants: vec![(0..end, id)], ..edit });
                }
            }
            self.visit_expr(&arm.body);
        }
    }

    // Constants are evaluated at compile time.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }
}

/// Returns the operators that may replace an operator.
const fn other_operators(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["/"],
        BinOp::BitAnd(_) | BinOp::BitXor(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::BitAndAssign(_) | BinOp::BitXorAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}

const fn is_assignment(binary: &ExprBinary) -> bool {
    matches!(
        binary.op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Returns whether a condition binds names.
/// Such a `let` chain cannot be in parentheses.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Returns whether an item exists only for tests.
fn is_skipped(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_for_tests = |list: &syn::MetaList| list.tokens.to_string() == "test";
        path.is_ident("test")
            || path.is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_for_tests)
    })
}

/// Traits with output for people. These traits are not mutated.
const UNTRIED: &[&str] = &["Debug", "Display"];

/// Functions with an obvious return value. This value is not used as a mutation.
const CONSTRUCTORS: &[&str] = &["new", "default"];

/// Maximum characters of source text in a mutant's description.
const TEXT_MAX: usize = 60;
