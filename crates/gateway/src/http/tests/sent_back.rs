//! What an administration client reads it may change a little and send back: in every version of the API and every tier (K-21).

use super::*;

/// An entity of each kind, in the order in which they can be made: some with everything that only some tiers have.
fn entities(has_more: bool) -> Vec<(&'static str, String)> {
    let more = |text: &'static str| if has_more { text } else { "" };
    let queue = |name, properties: String| (name, described("Queue", &properties));
    let rule = |name, filter: &str, action: &str| (name, described("Rule", &format!("{filter}{action}")));
    let value = |kind: &str, text: &str| {
        format!(
            "<KeyValueOfstringanyType><Key>k-{kind}</Key><Value xmlns:d6p1=\"http://www.w3.org/2001/XMLSchema\" \
             i:type=\"d6p1:{kind}\">{text}</Value></KeyValueOfstringanyType>"
        )
    };
    let values = [
        value("string", " a &lt;b&gt; "),
        value("int", "-5"),
        value("long", "9223372036854775807"),
        value("boolean", "true"),
        value("double", "1.5E3"),
        value("dateTime", "2026-01-31T12:00:00Z"),
        value("duration", "PT1H"),
    ]
    .concat();
    vec![
        queue("/usual", String::new()),
        queue("/partitioned", "<EnablePartitioning>true</EnablePartitioning>".into()),
        queue(
            "/keyed",
            "<AuthorizationRules><AuthorizationRule i:type=\"SharedAccessAuthorizationRule\"><ClaimType>SharedAccessKey</ClaimType>\
             <ClaimValue>None</ClaimValue><Rights><AccessRights>Listen</AccessRights></Rights><KeyName>reader</KeyName>\
             </AuthorizationRule></AuthorizationRules><Status>ReceiveDisabled</Status><UserMetadata>a &lt; b</UserMetadata>"
                .into(),
        ),
        queue(
            "/rich",
            format!(
                "<LockDuration>PT5S</LockDuration><MaxSizeInMegabytes>5120</MaxSizeInMegabytes><MaxDeliveryCount>1</MaxDeliveryCount>\
                 <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration><EnableBatchedOperations>false\
                 </EnableBatchedOperations><ForwardDeadLetteredMessagesTo>SB://Host/usual</ForwardDeadLetteredMessagesTo>{}",
                more(
                    "<RequiresSession>true</RequiresSession><RequiresDuplicateDetection>true</RequiresDuplicateDetection>\
                     <DuplicateDetectionHistoryTimeWindow>PT20S</DuplicateDetectionHistoryTimeWindow><DefaultMessageTimeToLive>\
                     PT1S</DefaultMessageTimeToLive><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><ForwardTo>usual</ForwardTo>"
                )
            ),
        ),
        ("/news", described("Topic", "<EnablePartitioning>true</EnablePartitioning><SupportOrdering>true</SupportOrdering>")),
        ("/small", described("Topic", "<MaxSizeInMegabytes>2048</MaxSizeInMegabytes><Status>SendDisabled</Status>")),
        (
            "/news/subscriptions/all",
            described(
                "Subscription",
                "<LockDuration>PT5M</LockDuration><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><Status>ReceiveDisabled</Status>\
                 <ForwardTo>HTTPS://Host:1/usual</ForwardTo><DeadLetteringOnFilterEvaluationExceptions>false\
                 </DeadLetteringOnFilterEvaluationExceptions><UserMetadata>words</UserMetadata>",
            ),
        ),
        rule(
            "/news/subscriptions/all/rules/sql",
            &format!(
                "<Filter i:type=\"SqlFilter\"><SqlExpression>a &lt; 1 OR b = @k-int</SqlExpression><Parameters>{values}</Parameters></Filter>"
            ).replace("@k-int", "1"),
            "<Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 'x'</SqlExpression></Action>",
        ),
        rule("/news/subscriptions/all/rules/none", "<Filter i:type=\"FalseFilter\"/>", ""),
        rule(
            "/news/subscriptions/all/rules/same",
            &format!("<Filter i:type=\"CorrelationFilter\"><CorrelationId></CorrelationId><Label> L </Label><Properties>{values}</Properties></Filter>"),
            "",
        ),
    ]
}

/// Without what tells the time of the update.
fn timeless(entry: &str) -> String {
    let mut text = entry.to_owned();
    for (start, end) in
        [("<updated>", "</updated>"), ("<UpdatedAt>", "</UpdatedAt>"), ("<ModifiedTime>", "</ModifiedTime>")]
    {
        while let Some(at) = text.find(start) {
            let length = text[at..].find(end).unwrap() + end.len();
            text.replace_range(at..at + length, "");
        }
    }
    text
}

impl TestServer {
    async fn set_tier(&self, tier: broker::Tier) {
        let task = Box::new(Task::SetTier { tier });
        let namespace = broker::NamespaceId(0);
        self.fake.ask(|request| Command::Manage { request, namespace, task }).await.unwrap().unwrap();
    }

    /// Reads each of these and sends back what it has read.
    async fn send_back(&self, entities: &[(&str, String)], tier: broker::Tier) {
        for version in ["2013-10", "2017-04", "2021-05", "2024-05"] {
            for (path, _) in entities {
                let address = format!("{path}?api-version={version}");
                let (status, read) = self.get(&address).await;
                assert_eq!(status, 200, "{path} in {tier:?}: {read}");
                let (status, answer) = self.update(&address, &read).await;
                assert_eq!(status, 200, "{path} of {version} in {tier:?}: {answer}");
                let again = self.get(&address).await.1;
                // A time to live that the tier does not have becomes its own.
                let own = |text: &str| {
                    let of = "<DefaultMessageTimeToLive>";
                    match tier {
                        broker::Tier::Basic => timeless(text)
                            .replace(&format!("{of}PT1S"), &format!("{of}P14D"))
                            .replace(&format!("{of}P10675199DT2H48M5.4775807S"), &format!("{of}P14D")),
                        _ => timeless(text),
                    }
                };
                assert_eq!(own(&again), own(&read), "{path} of {version} in {tier:?}");
            }
        }
    }
}

// K-21
#[tokio::test]
async fn whatever_is_read_can_be_sent_back_in_every_tier() {
    use broker::Tier;
    for tier in [Tier::Basic, Tier::Standard, Tier::Premium, Tier::Unlimited] {
        let server = TestServer::default();
        server.set_tier(tier).await;
        let entities = entities(tier != Tier::Basic);
        for (path, body) in &entities {
            let (status, answer) = server.create(path, body).await;
            assert_eq!(status, 201, "{path} in {tier:?}: {answer}");
        }
        server.send_back(&entities, tier).await;
    }
}

// K-21: also of entities that were made in another tier, with targets that are gone.
#[tokio::test]
async fn what_another_tier_has_left_can_be_sent_back() {
    use broker::Tier;
    for tier in [Tier::Basic, Tier::Standard, Tier::Premium, Tier::Unlimited] {
        let server = TestServer::default();
        let mut entities = entities(true);
        let large = "<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>";
        entities.push(("/large", described("Queue", large)));
        entities.push(("/wide", described("Topic", large)));
        for (path, body) in &entities {
            assert_eq!(server.create(path, body).await.0, 201, "{path}");
        }
        assert_eq!(server.request(As::Manager, "DELETE", "/usual", "", "").await.0, 200);
        entities.retain(|(path, _)| *path != "/usual");
        server.set_tier(tier).await;
        server.send_back(&entities, tier).await;
    }
}

// K-21
#[tokio::test]
async fn the_size_of_messages_is_told_by_a_tier_that_lets_nobody_choose_it() {
    use broker::Tier;
    for (tier, told) in
        [(Tier::Basic, 256), (Tier::Standard, 256), (Tier::Premium, 1_024), (Tier::Unlimited, 1_024)]
    {
        let server = TestServer::default();
        server.set_tier(tier).await;
        for kind in ["Queue", "Topic"] {
            let path = format!("/{kind}");
            let sized = |kilobytes: u32| {
                described(
                    kind,
                    &format!("<MaxMessageSizeInKilobytes>{kilobytes}</MaxMessageSizeInKilobytes>"),
                )
            };
            let (status, body) = server.create(&path, &described(kind, "")).await;
            assert_eq!(status, 201, "{body}");
            assert!(body.contains(&format!("<MaxMessageSizeInKilobytes>{told}<")), "{body}");
            let may_choose = told != 256;
            assert_eq!(server.create(&format!("/other{kind}"), &sized(told)).await.0 == 201, may_choose);
            assert_eq!(server.update(&path, &sized(2_048)).await.0 == 200, may_choose);
        }
    }
}
