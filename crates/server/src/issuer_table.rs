//! `[[issuer]]`: whose bearer tokens count, and what their roles are worth.

use crate::config::{Complaint, complaint, rights};
use gateway::auth::Role;
use serde::Deserialize;
use std::path::PathBuf;
use toml::Spanned;

/// What the SDKs of Service Bus ask their tokens for.
const USUAL_AUDIENCE: &str = "https://servicebus.azure.net";
/// Where applications have their roles, and users their scopes.
const USUAL_CLAIMS: [&str; 2] = ["roles", "scp"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IssuerTable {
    pub(crate) name: Spanned<String>,
    keys: Spanned<String>,
    audiences: Option<Spanned<Vec<String>>>,
    claims: Option<Vec<String>>,
    #[serde(default)]
    role: Vec<RoleTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleTable {
    name: Spanned<String>,
    rights: Spanned<toml::Value>,
    entity: Option<Spanned<String>>,
}

/// An issuer as it is declared.
#[derive(Debug, Clone)]
pub struct IssuerDefinition {
    pub name: String,
    pub audiences: Vec<Box<str>>,
    pub claims: Vec<Box<str>>,
    pub roles: Vec<Role>,
    pub keys: KeySource,
}

/// Where an issuer's public keys are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    Url(String),
}

impl IssuerTable {
    pub(crate) fn read(&self) -> Result<IssuerDefinition, Complaint> {
        let boxed =
            |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect::<Vec<Box<str>>>();
        if self.name.get_ref().is_empty() {
            return Err(complaint(&self.name, "an issuer needs the name that its tokens have as `iss`"));
        }
        let keys = match self.keys.get_ref().as_str() {
            "" => return Err(complaint(&self.keys, "the keys of an issuer are a file or a URL")),
            url if url.starts_with("https://") || url.starts_with("http://") => KeySource::Url(url.into()),
            other if other.contains("://") => {
                return Err(complaint(
                    &self.keys,
                    "the keys of an issuer are a file, or a URL of https or http",
                ));
            }
            file => KeySource::File(file.into()),
        };
        if let Some(audiences) = self.audiences.as_ref().filter(|audiences| audiences.get_ref().is_empty()) {
            return Err(complaint(audiences, "without an audience no token is for this server"));
        }
        Ok(IssuerDefinition {
            name: self.name.get_ref().clone(),
            audiences: self
                .audiences
                .as_ref()
                .map_or_else(|| vec![USUAL_AUDIENCE.into()], |audiences| boxed(audiences.get_ref())),
            claims: self.claims.as_deref().map_or_else(|| USUAL_CLAIMS.map(Into::into).to_vec(), boxed),
            roles: self.role.iter().map(RoleTable::read).collect::<Result<_, _>>()?,
            keys,
        })
    }
}

impl RoleTable {
    fn read(&self) -> Result<Role, Complaint> {
        if self.name.get_ref().is_empty() {
            return Err(complaint(&self.name, "a role needs a name"));
        }
        if let Some(entity) =
            self.entity.as_ref().filter(|entity| entity.get_ref().trim_matches('/').is_empty())
        {
            return Err(complaint(entity, "a role for everything has no `entity`"));
        }
        Ok(Role {
            name: self.name.get_ref().as_str().into(),
            rights: rights(&self.rights)?,
            entity: self.entity.as_ref().map(|entity| entity.get_ref().as_str().into()),
        })
    }
}
