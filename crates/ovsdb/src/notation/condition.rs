//! Conditions choose rows, mutations change columns in place (RFC 7047 section 5.1).
//!
//! In: a column, a function or mutator, a value. Out: three-element arrays.
//! Invariant: the words on the wire are those of the RFC.
//! Not here: whether the function suits the column; the server answers that.

use serde::ser::{Serialize, Serializer};

use super::{Datum, Name, Uuid};

/// A clause of a `where`. In transactions all clauses must hold; in `monitor_cond` any one suffices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The column looked at.
    pub column: Name,
    /// How it is compared.
    pub function: Function,
    /// What it is compared with.
    pub value: Datum,
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `<`, numbers only.
    Less,
    /// `<=`, numbers only.
    LessOrEqual,
    /// `==`, the whole value.
    Equal,
    /// `!=`, the whole value.
    NotEqual,
    /// `>=`, numbers only.
    GreaterOrEqual,
    /// `>`, numbers only.
    Greater,
    /// The column holds every element or pair of the value.
    Includes,
    /// The column holds no element or pair of the value.
    Excludes,
}

impl Condition {
    /// A condition.
    #[must_use]
    pub fn new(column: impl Into<Name>, function: Function, value: impl Into<Datum>) -> Self {
        Self {
            column: column.into(),
            function,
            value: value.into(),
        }
    }

    /// The row with this identity: the only condition that the server answers without walking the table.
    #[must_use]
    pub fn uuid(uuid: Uuid) -> Self {
        Self::new("_uuid", Function::Equal, uuid)
    }

    /// The column's whole value is `value`.
    #[must_use]
    pub fn equal(column: impl Into<Name>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// The column holds every element or pair of `value`.
    #[must_use]
    pub fn includes(column: impl Into<Name>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// The column holds no element or pair of `value`.
    #[must_use]
    pub fn excludes(column: impl Into<Name>, value: impl Into<Datum>) -> Self {
        Self::new(column, Function::Excludes, value)
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let function = match self.function {
            Function::Less => "<",
            Function::LessOrEqual => "<=",
            Function::Equal => "==",
            Function::NotEqual => "!=",
            Function::GreaterOrEqual => ">=",
            Function::Greater => ">",
            Function::Includes => "includes",
            Function::Excludes => "excludes",
        };
        (&self.column, function, &self.value).serialize(serializer)
    }
}

/// A change of one column, relative to what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// The column changed.
    pub column: Name,
    /// How it is changed.
    pub mutator: Mutator,
    /// By what.
    pub value: Datum,
}

/// How a mutation changes its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutator {
    /// `+=`, numbers.
    Add,
    /// `-=`, numbers.
    Subtract,
    /// `*=`, numbers.
    Multiply,
    /// `/=`, numbers; division by zero is a `domain error`.
    Divide,
    /// `%=`, integers.
    Modulo,
    /// Elements or pairs are added. A key that is there **keeps** its old value.
    Insert,
    /// Elements, pairs, or (given a set) keys are removed; what is absent is passed over.
    Delete,
}

impl Mutation {
    /// A mutation.
    #[must_use]
    pub fn new(column: impl Into<Name>, mutator: Mutator, value: impl Into<Datum>) -> Self {
        Self {
            column: column.into(),
            mutator,
            value: value.into(),
        }
    }

    /// Adds elements or pairs. To replace the value of a key, put a `delete` of the key before it.
    #[must_use]
    pub fn insert(column: impl Into<Name>, value: impl Into<Datum>) -> Self {
        Self::new(column, Mutator::Insert, value)
    }

    /// Removes elements, pairs, or (given a set) keys.
    #[must_use]
    pub fn delete(column: impl Into<Name>, value: impl Into<Datum>) -> Self {
        Self::new(column, Mutator::Delete, value)
    }
}

impl Serialize for Mutation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mutator = match self.mutator {
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
            Mutator::Multiply => "*=",
            Mutator::Divide => "/=",
            Mutator::Modulo => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        };
        (&self.column, mutator, &self.value).serialize(serializer)
    }
}
