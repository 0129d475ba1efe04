//! From definitions to namespaces that can be served: applied to the broker, with the policies and issuers that guard them.

use crate::definition::{self, Definition, NotTaken};
use crate::issuer_keys;
use anyhow::{Context, bail};
use broker::{LocalTime, NamespaceId};
use engine::Handle;
use gateway::auth::{Development, Guard, Policy};
use gateway::namespaces::{Namespace, Namespaces};
use std::sync::Arc;

/// Makes namespaces from definitions, at the start and again at each reload.
pub struct NamespaceOpener {
    pub engine: Handle,
    /// The policy that every namespace has, unless one of its name is configured.
    pub root: Policy,
    pub is_loopback_only: bool,
    pub development: Option<Arc<Development>>,
}

/// Namespaces as far as they could be made, in the order of their definitions, and what could not.
struct Opened {
    namespaces: Vec<Namespace>,
    not_taken: Vec<NotTaken>,
}

impl Opened {
    /// The one called `default`, which is the first, and the others.
    fn split(self) -> Option<(Namespace, Vec<Namespace>)> {
        let mut namespaces = self.namespaces.into_iter();
        Some((namespaces.next()?, namespaces.collect()))
    }
}

impl NamespaceOpener {
    /// Opens all namespaces at a start: the one called `default`, the others, and the names that were ever given.
    pub async fn open_all(
        &self,
        definitions: &[Definition],
    ) -> anyhow::Result<(Namespace, Vec<Namespace>, Vec<Box<str>>)> {
        let mut opened = self.open(definitions, |_| None).await;
        let (changes, missing): (Vec<_>, Vec<_>) =
            std::mem::take(&mut opened.not_taken).into_iter().partition(|not_taken| not_taken.is_there);
        // Without what is missing clients cannot work. What is only as it was keeps nobody from it.
        if !missing.is_empty() {
            bail!("{}", missing.into_iter().map(|not_taken| not_taken.what).collect::<Vec<_>>().join("; "));
        }
        changes.iter().for_each(|not_taken| tracing::error!("not taken: {}", not_taken.what));
        let (default, others) = opened.split().context("there is no namespace")?;
        Ok((default, others, definition::known_namespaces(&self.engine).await?))
    }

    /// `before` knows the number of a namespace that is served, and since when there is one: it goes on being served,
    /// whatever becomes of its definition.
    async fn open(
        &self,
        definitions: &[Definition],
        before: impl Fn(&str) -> Option<(NamespaceId, LocalTime)>,
    ) -> Opened {
        let mut opened = Opened { namespaces: Vec::with_capacity(definitions.len()), not_taken: Vec::new() };
        for definition in definitions {
            let applied = definition::apply(&self.engine, definition).await;
            opened.not_taken.extend(applied.not_taken);
            if let Some((id, created)) = applied.namespace.or_else(|| before(&definition.name)) {
                let mut issuers: Vec<_> =
                    self.development.iter().map(|development| Arc::new(development.issuer())).collect();
                for issuer in &definition.issuers {
                    match issuer_keys::open(issuer) {
                        Ok(issuer) => issuers.push(issuer),
                        Err(error) => {
                            opened.not_taken.push(NotTaken { what: format!("{error:#}"), is_there: false });
                        }
                    }
                }
                let guard = Guard::new(policies(definition, &self.root), self.is_loopback_only);
                let guard = guard.with_issuers(issuers);
                let (name, tier) = (definition.name.clone(), definition.tier);
                opened.namespaces.push(Namespace { id, name, guard, created, tier });
            }
        }
        opened
    }

    /// Applies the definitions again, while `served` goes on: policies take the place of the old ones, messages and connections
    /// stay as they are. Says what was not taken.
    pub async fn reload(&self, definitions: &[Definition], served: &Namespaces) -> Vec<String> {
        let before = |name: &str| served.named(name).map(|known| (known.id, known.created));
        let mut opened = self.open(definitions, before).await;
        let not_taken =
            std::mem::take(&mut opened.not_taken).into_iter().map(|not_taken| not_taken.what).collect();
        if let Some((default, others)) = opened.split() {
            served.replace(default, others);
        }
        not_taken
    }
}

/// The configured policies, and the root policy unless one of its name is configured.
fn policies(definition: &Definition, root: &Policy) -> Vec<Policy> {
    let is_configured = definition.policies.iter().any(|policy| policy.name == root.name);
    let root = (!is_configured).then(|| root.clone());
    definition.policies.iter().cloned().chain(root).collect()
}
