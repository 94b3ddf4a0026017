//! The mutation operators: what can be made wrong in a function by rule, as `cargo mutants` does it.

use crate::source::{Function, bytes};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Pat, ReturnType, Stmt, Type, UnOp};

/// Bytes of the file, and what stands there instead.
pub(crate) struct Edit {
    pub(crate) at: Range<usize>,
    pub(crate) instead: String,
    pub(crate) what: String,
}

/// Everything that the operators make of a function.
pub(crate) fn edits(function: &Function, text: &str) -> Vec<Edit> {
    let mut operators = Operators { text, edits: Vec::new() };
    operators.replace_body(function);
    operators.visit_block(&function.block);
    operators.edits
}

struct Operators<'a> {
    text: &'a str,
    edits: Vec<Edit>,
}

impl Operators<'_> {
    fn add(&mut self, at: Range<usize>, instead: &str, what: String) {
        if self.text[at.clone()] != *instead {
            self.edits.push(Edit { at, instead: instead.into(), what });
        }
    }

    /// The source of a node, in one line.
    fn source(&self, node: &impl Spanned) -> String {
        let words = self.text[bytes(node.span())].split_whitespace();
        words.collect::<Vec<_>>().join(" ").chars().take(50).collect()
    }

    /// The function does nothing, and returns something plain. One that does just that stays as it is.
    fn replace_body(&mut self, function: &Function) {
        let before = self.text[function.body.clone()].split_whitespace();
        let before = before.collect::<Vec<_>>().join(" ").replace("{}", "{ () }");
        for value in values(&function.signature.output) {
            let body = format!("{{ {value} }}");
            if body != before {
                self.add(function.body.clone(), &body, format!("the body is `{value}`"));
            }
        }
    }
}

/// Values of a type that a function may return.
fn values(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, output) = output else { return &["()"] };
    let Type::Path(path) = &**output else { return &["Default::default()"] };
    match path.path.segments.last().map(|last| last.ident.to_string()).as_deref() {
        Some("bool") => &["true", "false"],
        Some("u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64") => &["0", "1"],
        Some("Option") => &["None"],
        Some("Result") => &["Ok(Default::default())"],
        _ => &["Default::default()"],
    }
}

/// What stands for a binary operator instead.
fn other(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) | BinOp::Rem(_) => &["/"],
        BinOp::Div(_) => &["*"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitAnd(_) | BinOp::BitXor(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">"],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<"],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::MulAssign(_) => &["/="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Operators<'_> {
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        for instead in other(&binary.op) {
            let what = format!("`{instead}` in `{}`", self.source(binary));
            self.add(bytes(binary.op.span()), instead, what);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) {
            self.add(bytes(unary.op.span()), "", format!("no sign in `{}`", self.source(unary)));
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, found: &'ast syn::ExprMatch) {
        let all = |arm: &syn::Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        if found.arms.iter().any(all) {
            for arm in found.arms.iter().filter(|arm| !all(arm)) {
                self.add(bytes(arm.span()), "", format!("no arm `{}`", self.source(arm)));
            }
        }
        visit::visit_expr_match(self, found);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            for instead in ["true", "false"] {
                let what = format!("`{instead}` for the guard `{}`", self.source(guard));
                self.add(bytes(guard.span()), instead, what);
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement {
            let assigns = matches!(expression, Expr::Binary(_) | Expr::Assign(_));
            if assigns || matches!(expression, Expr::Call(_) | Expr::MethodCall(_)) {
                let what = format!("no statement `{}`", self.source(statement));
                self.add(bytes(statement.span()), "", what);
            }
        }
        visit::visit_stmt(self, statement);
    }
}
