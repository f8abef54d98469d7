//! Where a task runs and where its memory shall be, as parameters of any workload.

use os::{Mempolicy, NumaNode, Os};
use serde::{Deserialize, Serialize};
use units::{CpuId, NodeId};

use crate::{During, ParamError, ParamInfo, WORKLOADS, WorkloadError, WorkloadInfo, params::value};

const POLICY: ParamInfo = ParamInfo {
    name: "policy",
    expects: "\"default\", \"interleave\", or a policy with nodes as in \"preferred:1\" or \"bind:0+1\"",
    default: "default",
    about: "memory policy of all tasks (set_mempolicy)",
};
const DROP_CACHES: ParamInfo = ParamInfo {
    name: "drop_caches",
    expects: "\"auto\" or \"yes\"",
    default: "auto",
    about: "drop the machine's caches before it starts; with auto some workloads do so themselves",
};

/// Parameters that each workload has which maps memory, unless it has one of the same name.
const PARAMS: [ParamInfo; 2] = [POLICY, DROP_CACHES];

/// The shared parameters of a workload; a name that no workload has gives none.
pub(crate) fn shared_params(workload: &str) -> Vec<ParamInfo> {
    WORKLOADS.iter().find(|info| info.name == workload).map_or_else(Vec::new, WorkloadInfo::shared_params)
}

impl WorkloadInfo {
    /// The shared parameters that the workload has besides its own.
    pub fn shared_params(&self) -> Vec<ParamInfo> {
        let has = |name| self.params.iter().any(|param| param.name == name);
        PARAMS.iter().filter(|shared| self.maps_memory && !has(shared.name)).copied().collect()
    }
}

/// Settings that are made before a workload starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    policy: Policy,
    drops_caches: bool,
}

/// A memory policy, as a user writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// The machine's own.
    #[default]
    Default,
    /// On these nodes alone.
    Bind(Vec<NodeId>),
    /// On this node where it has memory free.
    Preferred(NodeId),
    /// On these nodes in turn; on all that have memory where there are none.
    Interleave(Vec<NodeId>),
}

impl Policy {
    /// From the text of a parameter.
    pub fn parse(text: &str) -> Result<Self, ParamError> {
        let bad = || value::<String>(&POLICY, text, |_| false).expect_err("nothing is accepted");
        let (word, list) = text.split_once(':').map_or((text, None), |(word, list)| (word, Some(list)));
        let node = |text: &str| text.parse().ok().filter(|node| *node < 1024).map(NodeId).ok_or_else(bad);
        let nodes = list.map(|list| list.split('+').map(node).collect::<Result<Vec<_>, _>>()).transpose()?;
        match (word, nodes.as_deref()) {
            ("default", None) => Ok(Self::Default),
            ("bind", Some(nodes)) => Ok(Self::Bind(nodes.to_vec())),
            ("preferred", Some([node])) => Ok(Self::Preferred(*node)),
            ("interleave", nodes) => Ok(Self::Interleave(nodes.unwrap_or_default().to_vec())),
            _ => Err(bad()),
        }
    }

    /// Why it cannot be had on these nodes: one that is not there, or has no memory.
    pub(crate) fn misfit(&self, nodes: &[NumaNode]) -> Option<String> {
        let lacking = self.nodes().iter().find(|wanted| !has_memory(nodes, **wanted))?;
        Some(no_such_node(POLICY.name, *lacking, "memory", nodes.iter().filter(|node| node.has_memory())))
    }

    /// Nodes that it names.
    fn nodes(&self) -> &[NodeId] {
        match self {
            Self::Default => &[],
            Self::Preferred(node) => std::slice::from_ref(node),
            Self::Bind(nodes) | Self::Interleave(nodes) => nodes,
        }
    }

    pub(crate) fn of(&self, nodes: &[NumaNode]) -> Mempolicy {
        let with_memory = || nodes.iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
        match self {
            Self::Default => Mempolicy::Local,
            Self::Bind(nodes) => Mempolicy::Bind(nodes.clone()),
            Self::Preferred(node) => Mempolicy::Preferred(*node),
            Self::Interleave(nodes) if nodes.is_empty() => Mempolicy::Interleave(with_memory()),
            Self::Interleave(nodes) => Mempolicy::Interleave(nodes.clone()),
        }
    }
}

impl Conditions {
    /// From all parameters of a workload.
    pub fn of<'a>(workload: &str, given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParamError> {
        Self::parse(&shared_params(workload), given)
    }

    /// From the parameters given that are among the workload's shared ones; others are passed over.
    pub(crate) fn parse<'a>(
        shared: &[ParamInfo],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParamError> {
        let mut conditions = Self::default();
        for (name, text) in given.into_iter().filter(|(name, _)| shared.iter().any(|param| param.name == *name)) {
            if name == POLICY.name {
                conditions.policy = Policy::parse(text)?;
            } else {
                let word = value::<String>(&DROP_CACHES, text, |word| word == "auto" || word == "yes")?;
                conditions.drops_caches = word == "yes";
            }
        }
        Ok(conditions)
    }

    /// Why they cannot be had on these nodes: one that is not there, or has no memory.
    pub fn misfit(&self, nodes: &[NumaNode]) -> Option<String> {
        self.policy.misfit(nodes)
    }

    /// Brings them about; tasks that are created later begin with the same policy.
    ///
    /// # Errors
    /// A call that the target refuses, or lacks (`ENOSYS`).
    pub async fn bring_about<O: Os>(&self, os: &O) -> Result<(), WorkloadError> {
        let nodes = os.nodes();
        if let Some(problem) = self.misfit(&nodes) {
            return Err(WorkloadError::Misfit(problem));
        }
        if self.policy != Policy::Default {
            os.set_mempolicy(&self.policy.of(&nodes)).await.during("set_mempolicy")?;
        }
        if self.drops_caches {
            os.drop_caches().await.during("drop_caches")?;
        }
        Ok(())
    }
}

pub(crate) fn has_memory(nodes: &[NumaNode], wanted: NodeId) -> bool {
    nodes.iter().any(|node| node.id == wanted && node.has_memory())
}

pub(crate) fn no_such_node<'a>(
    param: &str,
    found: NodeId,
    what: &str,
    valid: impl Iterator<Item = &'a NumaNode>,
) -> String {
    let valid: Vec<String> = valid.map(|node| node.id.to_string()).collect();
    format!("{param}: the machine has no node {found} with {what} (nodes with {what}: {})", valid.join(", "))
}

pub(crate) const CPU_NODE: ParamInfo = ParamInfo {
    name: "cpus",
    expects: "\"any\" or the number of a node",
    default: "0",
    about: "the node whose CPUs it runs on (sched_setaffinity)",
};

/// The CPUs that a task may use: the CPUs of a node, or every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuNode(pub Option<NodeId>);

impl CpuNode {
    pub(crate) const DEFAULT: Self = Self(Some(NodeId(0)));

    pub(crate) fn parse(text: &str) -> Result<Self, ParamError> {
        if text == "any" {
            return Ok(Self(None));
        }
        value(&CPU_NODE, text, |node: &u32| *node < 1024).map(|node| Self(Some(NodeId(node))))
    }

    pub(crate) fn misfit(self, nodes: &[NumaNode]) -> Option<String> {
        let with_cpus = || nodes.iter().filter(|node| !node.cpus.is_empty());
        let wanted = self.0.filter(|wanted| with_cpus().all(|node| node.id != *wanted))?;
        Some(no_such_node(CPU_NODE.name, wanted, "CPUs", with_cpus()))
    }

    /// The CPUs, where it is not any.
    pub(crate) fn of(self, nodes: &[NumaNode]) -> Option<Vec<CpuId>> {
        let own = nodes.iter().find(|node| Some(node.id) == self.0)?;
        Some(own.cpus.clone())
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    fn nodes() -> Vec<NumaNode> {
        let node = |id, cpus: &[u32], mib| NumaNode {
            id: NodeId(id),
            cpus: cpus.iter().copied().map(CpuId).collect(),
            memory: Bytes::mib(mib),
            distance: Vec::new(),
        };
        vec![node(0, &[0, 1], 512), node(1, &[], 512), node(2, &[2], 0)]
    }

    fn conditions(policy: &str) -> Result<Conditions, ParamError> {
        Conditions::of("fault-storm", [("policy", policy), ("tasks", "1")])
    }

    #[test]
    fn policies_are_words_with_nodes() {
        let policy = |text: &str| conditions(text).map(|conditions| conditions.policy.of(&nodes()));
        assert_eq!(policy("default"), Ok(Mempolicy::Local));
        assert_eq!(policy("preferred:1"), Ok(Mempolicy::Preferred(NodeId(1))));
        assert_eq!(policy("bind:0+1"), Ok(Mempolicy::Bind(vec![NodeId(0), NodeId(1)])));
        assert_eq!(policy("interleave"), Ok(Mempolicy::Interleave(vec![NodeId(0), NodeId(1)])));
        for bad in ["bind", "preferred", "preferred:0+1", "default:1", "bind:", "bind:x", "local", "bind:9999"] {
            assert!(conditions(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_one_message() {
        let problem = |text: &str| conditions(text).unwrap().misfit(&nodes());
        assert_eq!(problem("bind:0+1"), None);
        let expected = "policy: the machine has no node 2 with memory (nodes with memory: 0, 1)";
        assert_eq!(problem("preferred:2").as_deref(), Some(expected));
        let cpus = |text: &str| CpuNode::parse(text).unwrap().misfit(&nodes());
        assert_eq!((cpus("any"), cpus("2")), (None, None));
        let expected = "cpus: the machine has no node 1 with CPUs (nodes with CPUs: 0, 2)";
        assert_eq!(cpus("1").as_deref(), Some(expected));
    }

    #[test]
    fn a_workload_with_a_policy_of_its_own_keeps_it() {
        let shared =
            |info: &crate::WorkloadInfo| info.shared_params().iter().map(|param| param.name).collect::<Vec<_>>();
        assert_eq!(shared(&crate::fault_storm::INFO), ["policy", "drop_caches"]);
        assert_eq!(shared(&crate::numa_access::INFO), ["drop_caches"]);
        assert!(shared(&crate::guests::INFO).is_empty());
    }
}
