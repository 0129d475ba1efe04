//! Items through the official Rust SDK (P-8, P-56, P-86, K-40): over TLS with HTTP/2 and in plain text, with binary bodies as it sends
//! them by itself.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{
    ContainerProperties, CosmosNumber, PatchInstructions, PatchOperation, TimeToLive,
};
use azure_data_cosmos::options::{ItemWriteOptions, PatchItemOptions, PatchStrategy, Precondition};
use azure_data_cosmos::{CosmosClient, FeedScope, Query, TransactionalBatch};
use futures::TryStreamExt as _;
use otobus_sdk_rust::{KEY, Otobus};
use serde::{Deserialize, Serialize};
use serde_json::json;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cart {
    id: String,
    user: String,
    total: f64,
    visits: i64,
}

fn cart(id: &str, user: &str, total: f64) -> Cart {
    Cart { id: id.into(), user: user.into(), total, visits: 0 }
}

async fn carts(client: &CosmosClient, ttl: TimeToLive) -> azure_data_cosmos::Result<ContainerClient> {
    client.create_database("shop", None).await?;
    let database = client.database_client("shop");
    let properties = ContainerProperties::new("carts", "/user".into()).with_default_ttl(ttl);
    database.create_container(properties, None).await?;
    database.container_client("carts", None).await
}

async fn an_item_lives(scheme: &str) -> Outcome {
    let otobus = Otobus::start();
    let client = otobus.client(scheme, KEY).await?;
    let carts = carts(&client, TimeToLive::Forever).await?;
    let mut item = cart("1", "ann", 12.5);
    assert_eq!(u16::from(carts.create_item("ann", "1", &item, None).await?.status().status_code()), 201);
    assert_eq!(carts.read_item("ann", "1", None).await?.into_model::<Cart>()?, item);
    item.total = 1e-7;
    carts.replace_item("ann", "1", &item, None).await?;
    assert_eq!(carts.read_item("ann", "1", None).await?.into_model::<Cart>()?, item);
    item.visits = i64::MAX >> 11;
    carts.upsert_item("ann", "1", &item, None).await?;
    assert_eq!(carts.read_item("ann", "1", None).await?.into_model::<Cart>()?, item);
    carts.delete_item("ann", "1", None).await?;
    assert!(carts.read_item("ann", "1", None).await.is_err_and(|error| error.status().is_not_found()));
    Ok(())
}

#[tokio::test]
async fn an_item_lives_over_https() -> Outcome {
    an_item_lives("https").await
}

#[tokio::test]
async fn an_item_lives_over_http() -> Outcome {
    an_item_lives("http").await
}

#[tokio::test]
async fn queries_answer_right_in_one_partition_and_across_all() -> Outcome {
    let otobus = Otobus::start();
    let client = otobus.client("http", KEY).await?;
    let carts = carts(&client, TimeToLive::Forever).await?;
    for (id, user, total) in [("1", "ann", 3.0), ("2", "ann", 1.0), ("3", "bob", 2.0)] {
        carts.create_item(user, id, &cart(id, user, total), None).await?;
    }
    let query = Query::from("SELECT * FROM c WHERE c.total > @least").with_parameter("@least", 1.5)?;
    let rows = carts.query_items::<Cart>(query.clone(), FeedScope::partition("ann"), None).await?;
    let rows: Vec<Cart> = rows.try_collect().await?;
    assert_eq!(rows, [cart("1", "ann", 3.0)]);
    let mut rows: Vec<Cart> =
        carts.query_items(query, FeedScope::full_container(), None).await?.try_collect().await?;
    rows.sort_by(|left, right| left.id.cmp(&right.id));
    assert_eq!(rows, [cart("1", "ann", 3.0), cart("3", "bob", 2.0)]);
    let ordered = Query::from("SELECT VALUE c.id FROM c ORDER BY c.total");
    let ids: Vec<String> =
        carts.query_items(ordered, FeedScope::full_container(), None).await?.try_collect().await?;
    assert_eq!(ids, ["2", "3", "1"]);
    Ok(())
}

#[tokio::test]
async fn a_patch_works_on_either_side() -> Outcome {
    let otobus = Otobus::start();
    let client = otobus.client("http", KEY).await?;
    let carts = carts(&client, TimeToLive::Forever).await?;
    carts.create_item("ann", "1", &cart("1", "ann", 1.0), None).await?;
    for strategy in [PatchStrategy::ClientSide, PatchStrategy::ServerSide] {
        let patch = PatchInstructions::new()
            .with_operation(PatchOperation::replace("/total", json!(7.5)))
            .with_operation(PatchOperation::increment("/visits", CosmosNumber::from(1_i64)));
        let options = PatchItemOptions::default().with_strategy(strategy);
        carts.patch_item("ann", "1", patch, Some(options)).await?;
    }
    let patched: Cart = carts.read_item("ann", "1", None).await?.into_model()?;
    assert_eq!((patched.total, patched.visits), (7.5, 2));
    Ok(())
}

#[tokio::test]
async fn a_batch_happens_whole_or_not_at_all() -> Outcome {
    let otobus = Otobus::start();
    let client = otobus.client("http", KEY).await?;
    let carts = carts(&client, TimeToLive::Forever).await?;
    let batch = TransactionalBatch::new("ann")
        .create_item(cart("1", "ann", 1.0))?
        .upsert_item(cart("2", "ann", 2.0), None)?
        .read_item("1", None);
    let results = carts.execute_transactional_batch(batch, None).await?.into_model()?;
    assert_eq!(results.results().len(), 3);
    assert!(results.results().iter().all(|result| result.is_success()));
    let batch = TransactionalBatch::new("ann")
        .create_item(cart("3", "ann", 3.0))?
        .create_item(cart("1", "ann", 1.0))?;
    let failed = carts.execute_transactional_batch(batch, None).await;
    let is_failed = match failed {
        Ok(response) => response.into_model()?.results().iter().any(|result| !result.is_success()),
        Err(error) => error.status().is_conflict(),
    };
    assert!(is_failed);
    assert!(carts.read_item("ann", "3", None).await.is_err_and(|error| error.status().is_not_found()));
    Ok(())
}

#[tokio::test]
async fn only_who_saw_the_newest_may_write_and_errors_are_told_apart() -> Outcome {
    let otobus = Otobus::start();
    let client = otobus.client("http", KEY).await?;
    let carts = carts(&client, TimeToLive::Forever).await?;
    let created = carts.create_item("ann", "1", &cart("1", "ann", 1.0), None).await?;
    let etag = created.headers().etag().cloned().ok_or("no etag")?;
    let guarded = || ItemWriteOptions::default().with_precondition(Precondition::if_match(etag.clone()));
    carts.replace_item("ann", "1", &cart("1", "ann", 2.0), Some(guarded())).await?;
    let late = carts.replace_item("ann", "1", &cart("1", "ann", 3.0), Some(guarded())).await;
    assert!(late.is_err_and(|error| error.status().is_precondition_failed()));
    let again = carts.create_item("ann", "1", &cart("1", "ann", 1.0), None).await;
    assert!(again.is_err_and(|error| error.status().is_conflict()));
    let missing = carts.replace_item("ann", "9", &cart("9", "ann", 1.0), None).await;
    assert!(missing.is_err_and(|error| error.status().is_not_found()));
    let stranger = otobus.client("http", "c3RyYW5nZXI=").await;
    let refused = match stranger {
        Ok(client) => client.database_client("shop").read(None).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    Ok(())
}

#[tokio::test]
async fn time_to_live_ends_items_by_the_containers_setting_and_by_their_own() -> Outcome {
    let otobus = Otobus::start();
    let client = otobus.client("http", KEY).await?;
    let carts = carts(&client, TimeToLive::Seconds(100)).await?;
    carts.create_item("ann", "default", &cart("default", "ann", 1.0), None).await?;
    carts.create_item("ann", "short", json!({"id": "short", "user": "ann", "ttl": 10}), None).await?;
    carts.create_item("ann", "never", json!({"id": "never", "user": "ann", "ttl": -1}), None).await?;
    let there = async |id: &str| match carts.read_item("ann", id, None).await {
        Ok(_) => true,
        Err(error) => {
            assert!(error.status().is_not_found());
            false
        }
    };
    otobus.advance("PT11S");
    assert!(!there("short").await && there("default").await);
    otobus.advance("PT1M30S");
    assert!(!there("default").await && there("never").await);
    let ids: Vec<String> = carts
        .query_items(Query::from("SELECT VALUE c.id FROM c"), FeedScope::full_container(), None)
        .await?
        .try_collect()
        .await?;
    assert_eq!(ids, ["never"]);
    carts.create_item("ann", "short", json!({"id": "short", "user": "ann"}), None).await?;
    Ok(())
}
