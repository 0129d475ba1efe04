//! Subscriptions and rules: create, read, update, delete, list (HX-1.2.6, HX-1.2.7).

use super::description::{rule, subscription};
use super::failure::Failure;
use super::route::Paging;
use super::xml::Element;
use super::{Call, Door, Success, atom};
use crate::ask::Ask;
use broker::{Answer, Task};
use hyper::{Method, StatusCode};

/// The description in a body, which must be of the kind that the address says.
fn described(call: &Call<'_>, name: &'static str) -> Result<Element, Failure> {
    let described = atom::description(&call.body)?;
    if &*described.name == name {
        return Ok(described);
    }
    Err(Failure::Bad(format!("The body holds no {name}.")))
}

impl<A: Ask> Door<'_, A> {
    pub(super) async fn subscription(
        &self,
        call: &Call<'_>,
        topic: &str,
        name: &str,
    ) -> Result<Success, Failure> {
        let mut status = StatusCode::OK;
        let (topic, name) = (topic.into(), name.into());
        let task = match *call.method {
            Method::GET => Task::DescribeSubscription { topic, name },
            Method::DELETE => Task::DeleteSubscription { topic, name },
            Method::PUT => {
                let (settings, rule) = subscription::read(&described(call, "SubscriptionDescription")?)?;
                let targets = [&settings.forward_to, &settings.forward_dead_letters_to];
                self.check_targets(call, targets.map(|target| target.as_deref())).await?;
                if call.is_update() {
                    Task::UpdateSubscription { topic, name, settings }
                } else {
                    status = StatusCode::CREATED;
                    Task::CreateSubscription { topic, name, settings, rule }
                }
            }
            _ => return Err(Failure::MethodNotAllowed),
        };
        match self.manage(call, task).await? {
            Answer::Subscription(subscription) => Ok(Success::entry(status, &*subscription, call.site)),
            Answer::Deleted => Ok(Success::deleted()),
            _ => Err(Failure::Internal),
        }
    }

    pub(super) async fn subscriptions(
        &self,
        call: &Call<'_>,
        topic: &str,
        paging: Paging,
    ) -> Result<Success, Failure> {
        if call.method != Method::GET {
            return Err(Failure::MethodNotAllowed);
        }
        let task = Task::ListSubscriptions { topic: topic.into(), skip: paging.skip, top: paging.top + 1 };
        match self.manage(call, task).await? {
            Answer::Subscriptions(list) => {
                let path = format!("{topic}/Subscriptions");
                Ok(Success::feed("Subscriptions", &path, list, paging, call.site))
            }
            _ => Err(Failure::Internal),
        }
    }

    pub(super) async fn rule(
        &self,
        call: &Call<'_>,
        topic: &str,
        subscription: &str,
        name: &str,
    ) -> Result<Success, Failure> {
        let mut status = StatusCode::OK;
        let (topic, subscription) = (topic.into(), subscription.into());
        let task = match *call.method {
            Method::GET => Task::DescribeRule { topic, subscription, name: name.into() },
            Method::DELETE => Task::DeleteRule { topic, subscription, name: name.into() },
            Method::PUT => {
                // The address names the rule; what the body calls it is an echo.
                let rule = rule::read(&described(call, "RuleDescription")?, name)?;
                let rule = broker::topic::rule::Rule { name: name.into(), ..rule };
                if call.is_update() {
                    Task::UpdateRule { topic, subscription, rule }
                } else {
                    status = StatusCode::CREATED;
                    Task::CreateRule { topic, subscription, rule }
                }
            }
            _ => return Err(Failure::MethodNotAllowed),
        };
        match self.manage(call, task).await? {
            Answer::Rule(rule) => Ok(Success::entry(status, &*rule, call.site)),
            Answer::Deleted => Ok(Success::deleted()),
            _ => Err(Failure::Internal),
        }
    }

    pub(super) async fn rules(
        &self,
        call: &Call<'_>,
        topic: &str,
        subscription: &str,
        paging: Paging,
    ) -> Result<Success, Failure> {
        if call.method != Method::GET {
            return Err(Failure::MethodNotAllowed);
        }
        let (skip, top) = (paging.skip, paging.top + 1);
        let task = Task::ListRules { topic: topic.into(), subscription: subscription.into(), skip, top };
        match self.manage(call, task).await? {
            Answer::Rules(list) => {
                let path = format!("{topic}/Subscriptions/{subscription}/Rules");
                Ok(Success::feed("Rules", &path, list, paging, call.site))
            }
            _ => Err(Failure::Internal),
        }
    }
}
