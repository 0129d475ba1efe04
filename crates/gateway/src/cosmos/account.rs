//! The account document (section 3) and the plan of a query (12.3): the two that the door writes by itself.

use serde_json::json;

/// What native query planners look at (P-9).
const QUERY_ENGINE: &str = concat!(
    r#"{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":10,"maxLogicalAndPerSqlQuery":2000,"#,
    r#""maxLogicalOrPerSqlQuery":2000,"maxUdfRefPerSqlQuery":10,"maxInExpressionItemsCount":16000,"#,
    r#""queryMaxInMemorySortDocumentCount":500,"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,"#,
    r#""sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"#,
    r#""sqlAllowLike":true,"sqlAllowGroupByClause":true,"sqlAllowTop":true,"maxSpatialQueryCells":12,"#,
    r#""spatialMaxGeometryPointCount":256,"sqlDisableOptimizationFlags":0,"enableSpatialIndexing":true}"#
);

/// The account as a client that reached it under `endpoint` shall know it. There are no locations of the thin client in it: with
/// them the Rust client would speak another protocol.
pub fn document(name: &str, endpoint: &str) -> String {
    let locations = json!([{ "name": "Local", "databaseAccountEndpoint": endpoint }]);
    json!({
        "_self": "",
        "id": name,
        "_rid": format!("{name}.documents.local"),
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": locations,
        "readableLocations": locations,
        "enableMultipleWriteLocations": false,
        "continuousBackupEnabled": false,
        "enableNRegionSynchronousCommit": false,
        "enablePerPartitionFailoverBehavior": false,
        "userReplicationPolicy": { "asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4 },
        "userConsistencyPolicy": { "defaultConsistencyLevel": "Session" },
        "systemReplicationPolicy": { "minReplicaSetSize": 1, "maxReplicasetSize": 4 },
        "readPolicy": { "primaryReadCoefficient": 1, "secondaryReadCoefficient": 1 },
        "queryEngineConfiguration": QUERY_ENGINE,
    })
    .to_string()
}

/// The plan that lets every query through: with one range, its answer is the whole answer (P-63).
pub const PLAN: &str = concat!(
    r#"{"partitionedQueryExecutionInfoVersion":2,"queryInfo":{"distinctType":"None","top":null,"offset":null,"limit":null,"#,
    r#""orderBy":[],"orderByExpressions":[],"groupByExpressions":[],"groupByAliases":[],"aggregates":[],"#,
    r#""groupByAliasToAggregateType":{},"rewrittenQuery":"","hasSelectValue":false,"hasNonStreamingOrderBy":false,"#,
    r#""dCountInfo":null},"queryRanges":[{"min":"","max":"FF","isMinInclusive":true,"isMaxInclusive":false}]}"#
);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    // P-8, P-9, P-10
    #[test]
    fn the_account_has_what_every_client_needs_and_nothing_that_leads_astray() {
        let account: Value = serde_json::from_str(&document("otobus", "http://h:1/")).unwrap();
        for member in ["_self", "id", "_rid", "writableLocations", "readableLocations"] {
            assert!(account.get(member).is_some(), "{member}");
        }
        assert_eq!(account["writableLocations"][0]["databaseAccountEndpoint"], "http://h:1/");
        let engine = account["queryEngineConfiguration"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(engine).unwrap().is_object());
        for member in ["_etag", "thinClientWritableLocations", "thinClientReadableLocations"] {
            assert!(account.get(member).is_none(), "{member}");
        }
    }

    // P-63
    #[test]
    fn the_plan_is_json_with_one_whole_range() {
        let plan: Value = serde_json::from_str(PLAN).unwrap();
        assert_eq!(plan["queryRanges"][0]["max"], "FF");
        assert_eq!(plan["queryInfo"]["rewrittenQuery"], "");
    }
}
