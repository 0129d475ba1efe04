//! Queries over items and over definitions, and what a query would use.

use super::lists::page_items;
use super::{Scene, position};
use crate::definition::Container;
use crate::index::plan::{self, Plan};
use crate::index::source::PlanSource;
use crate::item::scope::Scope;
use crate::item::stored::Numbers;
use crate::item::transaction::place;
use crate::json::{self, Object, Value};
use crate::query::{self, Candidate, PageRequest, Prepared, Resume, Source};
use crate::{Answer, ContainerPath, Page, Query, QueryScope, Refusal, Reply, charge, limits};
use bytes::Bytes;

impl Scene<'_> {
    pub(super) fn query(&self, query: &Query) -> Result<Reply, Refusal> {
        if query.text.len() > limits::QUERY_BYTES {
            return Err(Refusal::TooLarge { bytes: query.text.len(), limit: limits::QUERY_BYTES });
        }
        match &query.of {
            QueryScope::Items { container } => self.query_items(query, container),
            _ => self.query_definitions(query),
        }
    }

    fn query_items(&self, query: &Query, path: &ContainerPath) -> Result<Reply, Refusal> {
        let Asked { container, prepared, scope, resume } = self.ask(query, path)?;
        let numbers = Numbers::read(self.view, container.number)?;
        let now = self.now.max(numbers.written);
        let plan = self.plan(container, &prepared, scope, resume.as_ref())?;
        let used_index = plan.index_path().is_some();
        let is_ordered = plan.is_ordered;
        let start = resume.as_ref().and_then(Resume::start).cloned();
        let mut source = PlanSource::open(container, self.view, now, plan, start.as_ref())?;
        let request = PageRequest {
            max_items: page_items(query.listing.max_items)?,
            resume,
            binding: u64::from(container.number),
            is_ordered,
        };
        let rows = prepared.run_watched(&mut source, request, now, self.watch)?;
        let mut metrics = rows.metrics;
        metrics.used_index |= used_index;
        let charge = charge::page(source.steps.max(rows.steps), metrics.returned_bytes);
        let page = Page {
            parent_rid: container.rid.to_string(),
            values: rows.values,
            continuation: rows.continuation,
            metrics: Some(metrics),
        };
        Ok(Reply { answer: Answer::Page(page), charge, place: Some(place(container, &numbers, None)) })
    }

    fn ask(&self, query: &Query, path: &ContainerPath) -> Result<Asked<'_>, Refusal> {
        let container = self.definitions.owner_container(path)?;
        let prepared = query::prepare_with(&query.text, &query.parameters, container.settings.known())?;
        if query.scope == crate::Scope::WithoutLeave {
            check_leave(container, &prepared)?;
        }
        let scope = Scope::of(&container.settings, &query.scope)?;
        let binding = u64::from(container.number);
        let resume = query.listing.continuation.as_ref();
        let resume = resume.map(|token| prepared.resume(token, binding)).transpose()?;
        Ok(Asked { container, prepared, scope, resume })
    }

    fn plan(
        &self,
        container: &Container,
        prepared: &Prepared,
        scope: Scope,
        resume: Option<&Resume>,
    ) -> Result<Plan, Refusal> {
        let mut wants = prepared.wants();
        let start = resume.and_then(Resume::start);
        if let Some(resume) = resume
            && !resume.is_ordered()
        {
            // The page before did not come in order: neither does this one.
            wants.streams_in_order = false;
        }
        let start = start.map(|position| position::start(position));
        let plan = plan::choose(container, self.view, &wants, scope, start)?;
        if start.is_some_and(|start| !start.is_empty() && !plan::belongs(container, &plan, start)) {
            return Err(Refusal::bad(
                "The index that the continuation belongs to is gone, because the indexing policy was changed. Begin the query again.",
            ));
        }
        Ok(plan)
    }

    fn query_definitions(&self, query: &Query) -> Result<Reply, Refusal> {
        let listed = self.listed(&query.of)?;
        let prepared = query::prepare(&query.text, &query.parameters)?;
        let binding = binding(&query.of, &listed.parent_rid);
        let resume = query.listing.continuation.as_ref();
        let resume = resume.map(|token| prepared.resume(token, binding)).transpose()?;
        let first = resume.as_ref().and_then(Resume::start).cloned().unwrap_or_default();
        let candidates = listed.documents.into_iter().map(|(number, body)| Candidate {
            position: Bytes::copy_from_slice(&number.to_be_bytes()),
            place: Bytes::copy_from_slice(&number.to_be_bytes()),
            body,
        });
        let mut source = Listed { candidates: candidates.filter(|one| one.position >= first).collect() };
        let max_items = page_items(query.listing.max_items)?;
        let request = PageRequest { max_items, resume, binding, is_ordered: false };
        let rows = prepared.run_watched(&mut source, request, self.now, self.watch)?;
        let page = Page {
            parent_rid: listed.parent_rid,
            values: rows.values,
            continuation: rows.continuation,
            metrics: Some(rows.metrics),
        };
        Ok(Reply { answer: Answer::Page(page), charge: charge::page(rows.steps, 0), place: None })
    }

    /// The indexes that a query uses, and those that it could use: in the forms that the clients know (12.2).
    pub(super) fn explain(&self, query: &Query) -> Result<Reply, Refusal> {
        let QueryScope::Items { container: path } = &query.of else {
            return Err(Refusal::bad("Only queries over items use indexes."));
        };
        let Asked { container, prepared, scope, resume } = self.ask(query, path)?;
        // A partition key that is named is an index too.
        let named = scope.key.as_ref().map_or(0, |key| key.0.len());
        let keys =
            container.settings.key_paths[..named].iter().map(|names| format!("/{}/?", names.join("/")));
        let plan = self.plan(container, &prepared, scope, resume.as_ref())?;
        let used: Vec<String> = plan.index_path().into_iter().chain(keys).collect();
        let touched = prepared.wants().touched.iter().map(plan::path_text).collect::<Vec<_>>();
        let mut potential: Vec<String> = touched.into_iter().filter(|path| !used.contains(path)).collect();
        potential.sort();
        potential.dedup();
        let numbers = Numbers::read(self.view, container.number)?;
        Ok(Reply {
            answer: Answer::Explanation(explanation(&used, &potential)),
            charge: charge::QUERY,
            place: Some(place(container, &numbers, None)),
        })
    }
}

/// As the service says it.
pub const NEEDS_LEAVE: &str = "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.";

/// The service answers a query over many partitions for who says that it may be one, because it costs as much as there are (12.1).
fn check_leave(container: &Container, prepared: &Prepared) -> Result<(), Refusal> {
    let wants = prepared.wants();
    if !wants.reads_items || plan::names_one_partition(container, &wants) {
        return Ok(());
    }
    Err(Refusal::bad(NEEDS_LEAVE))
}

struct Asked<'a> {
    container: &'a Container,
    prepared: Prepared,
    scope: Scope,
    resume: Option<Resume>,
}

struct Listed {
    candidates: std::collections::VecDeque<Candidate>,
}

impl Source for Listed {
    fn next(&mut self) -> Result<Option<Candidate>, Refusal> {
        Ok(self.candidates.pop_front())
    }
}

/// Binds a continuation to what was queried.
fn binding(of: &QueryScope, parent_rid: &str) -> u64 {
    let kind = match of {
        QueryScope::Databases => "dbs",
        QueryScope::Containers { .. } => "colls",
        QueryScope::Items { .. } => "docs",
        QueryScope::Scripts { .. } => "scripts",
        QueryScope::Users { .. } => "users",
        QueryScope::Permissions { .. } => "permissions",
        QueryScope::EncryptionKeys { .. } => "clientencryptionkeys",
        QueryScope::Offers => "offers",
    };
    kind.bytes().chain(parent_rid.bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn explanation(used: &[String], potential: &[String]) -> Bytes {
    let singles = |paths: &[String]| {
        let one = |path: &String| {
            Value::Object(Object(vec![
                ("FilterExpression".to_owned(), Value::text("")),
                ("IndexSpec".to_owned(), Value::text(path.clone())),
                ("FilterPreciseSet".to_owned(), Value::Bool(true)),
                ("IndexPreciseSet".to_owned(), Value::Bool(true)),
                ("IndexImpactScore".to_owned(), Value::text("High")),
            ]))
        };
        Value::Array(paths.iter().map(one).collect())
    };
    let pair = |paths: &[String]| {
        Value::Object(Object(vec![
            ("SingleIndexes".to_owned(), singles(paths)),
            ("CompositeIndexes".to_owned(), Value::Array(Vec::new())),
        ]))
    };
    let members = vec![
        ("UtilizedSingleIndexes".to_owned(), singles(used)),
        ("PotentialSingleIndexes".to_owned(), singles(potential)),
        ("UtilizedCompositeIndexes".to_owned(), Value::Array(Vec::new())),
        ("PotentialCompositeIndexes".to_owned(), Value::Array(Vec::new())),
        ("UtilizedIndexes".to_owned(), pair(used)),
        ("PotentialIndexes".to_owned(), pair(potential)),
    ];
    let mut text = Vec::new();
    json::write(&Value::Object(Object(members)), &mut text);
    text.into()
}
