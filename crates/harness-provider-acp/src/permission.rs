use agent_client_protocol_schema::v1::{
    PermissionOptionId, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionResponse,
    SelectedPermissionOutcome,
};
use serde::Deserialize;

use crate::own_tool::AskedCall;

/// What an agent is told that asks whether it may use a tool.
///
/// There is nobody to ask, so the answer is written down beforehand. An agent that is not to ask at all is put into
/// the right [mode](crate::AcpProvider::with_mode). The tool by which it hands in its value is allowed in any case,
/// where the agent says plainly enough that it is the one it asks for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Permissions {
    /// No: the first of its options that rejects once, else the first that rejects always.
    #[default]
    Reject,
    /// Yes: the first of its options that allows once, else the first that allows always.
    Allow,
}

/// The part of a permission request that an answer depends on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    #[serde(default)]
    pub(crate) tool_call: AskedCall,
    #[serde(default)]
    options: Vec<Offered>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offered {
    option_id: PermissionOptionId,
    kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Kind {
    Known(PermissionOptionKind),
    /// A kind of a later protocol: it is never chosen.
    Other(serde::de::IgnoredAny),
}

impl Asked {
    /// Answers by `permissions`, never by guess: an agent that offers nothing fitting hears that nobody chose. Says too
    /// whether the permission was granted.
    pub(crate) fn answer(&self, permissions: Permissions) -> (RequestPermissionResponse, bool) {
        let wanted = match permissions {
            Permissions::Reject => [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways],
            Permissions::Allow => [PermissionOptionKind::AllowOnce, PermissionOptionKind::AllowAlways],
        };
        let found = wanted.iter().find_map(|wanted| {
            let fits = |kind: &Kind| matches!(kind, Kind::Known(kind) if kind == wanted);
            self.options.iter().find(|option| fits(&option.kind))
        });
        match found {
            Some(option) => {
                let chosen = SelectedPermissionOutcome::new(option.option_id.clone());
                let response = RequestPermissionResponse::new(RequestPermissionOutcome::Selected(chosen));
                (response, permissions == Permissions::Allow)
            }
            None => (nobody_chose(), false),
        }
    }
}

/// The answer after a cancellation, as the protocol asks for it.
pub(crate) fn nobody_chose() -> RequestPermissionResponse {
    RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(kinds: &[&str], permissions: Permissions, expected: Option<usize>) {
        let options: Vec<Value> = kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| json!({ "optionId": format!("o{index}"), "name": "Yes, and no", "kind": kind }))
            .collect();
        let asked: Asked = serde_json::from_value(json!({ "sessionId": "s", "options": options })).unwrap();
        let (answer, granted) = asked.answer(permissions);
        assert_eq!(granted, permissions == Permissions::Allow && expected.is_some(), "{kinds:?}");
        let expected = match expected {
            Some(index) => json!({ "outcome": { "outcome": "selected", "optionId": format!("o{index}") } }),
            None => json!({ "outcome": { "outcome": "cancelled" } }),
        };
        assert_eq!(serde_json::to_value(answer).unwrap(), expected, "{kinds:?}");
    }

    #[test]
    fn an_agent_that_offers_nothing_fitting_hears_that_nobody_chose() {
        for permissions in [Permissions::Reject, Permissions::Allow] {
            check(&[], permissions, None);
            check(&["allow_for_ever", "reject"], permissions, None);
        }
        check(&["allow_once", "allow_always"], Permissions::Reject, None);
        check(&["reject_once", "reject_always"], Permissions::Allow, None);
    }

    #[test]
    fn the_first_fitting_option_is_chosen_and_once_before_always() {
        let all = ["allow_always", "later", "allow_once", "reject_always", "reject_once", "reject_once"];
        check(&all, Permissions::Reject, Some(4));
        check(&all, Permissions::Allow, Some(2));
        check(&["reject_always", "allow_always"], Permissions::Reject, Some(0));
        check(&["reject_always", "allow_always"], Permissions::Allow, Some(1));
    }
}
