//! A container as the manifests describe it, without an engine.
//!
//! In: a pod template as the API server holds it, and what the node puts in its place
//! (names, folders). Out: a [`Container`], and the process that becomes it: a root of
//! its own with this machine's programs as the image, only the mounts that the template
//! names, its user, its capabilities. Invariant: a field that says something about
//! rights and that is not understood here is an error, so that the manifests cannot say
//! what no test has seen. Not here: the engine's seccomp filter and its devices.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::pivot_root;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where the image has our program.
const PROGRAMS: &str = "/noverlay/bin";
/// Where a pod finds its account (facts of Kubernetes: the admission of ServiceAccounts).
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What of this machine is the image: what a Debian image with FRR, Open vSwitch and python3 has.
const IMAGE: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    // vtysh asks PAM, which has to know root.
    "/etc/pam.d",
    "/etc/security",
    "/etc/shadow",
    "/etc/login.defs",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
];

/// A folder of the node that the container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// The folder; an empty one in memory, where there is none.
    pub(crate) from: Option<PathBuf>,
    /// Where the container has it.
    pub(crate) to: PathBuf,
    /// May it not be written?
    pub(crate) read_only: bool,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Container {
    /// Its program on this machine.
    pub(crate) program: PathBuf,
    /// Its program's arguments.
    pub(crate) arguments: Vec<String>,
    /// Its environment.
    pub(crate) env: BTreeMap<String, String>,
    /// User.
    pub(crate) uid: u64,
    /// Group.
    pub(crate) gid: u64,
    /// Further groups.
    pub(crate) groups: Vec<u64>,
    /// Capabilities, as the manifests spell them: `NET_ADMIN`.
    pub(crate) capabilities: Vec<String>,
    /// `allowPrivilegeEscalation: false`.
    pub(crate) no_new_privileges: bool,
    /// `readOnlyRootFilesystem`.
    pub(crate) read_only: bool,
    /// What it sees of the node.
    pub(crate) mounts: Vec<Mount>,
}

/// What a node puts in the place of what a template names.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// Folder of our programs.
    pub(crate) programs: PathBuf,
    /// Values of `fieldRef`, by path.
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// The folder of a ConfigMap's files.
    pub(crate) config: PathBuf,
    /// The folder with the account's token, certificate and namespace.
    pub(crate) account: PathBuf,
    /// The folders of the node that stand for `hostPath`s.
    pub(crate) host: BTreeMap<&'static str, PathBuf>,
    /// Address and port of the API server.
    pub(crate) server: (String, u16),
}

impl Container {
    /// Reads the only container of a pod template.
    pub(crate) fn of(template: &Value, around: &Surroundings) -> Result<Self> {
        let spec = object(template.pointer("/spec"), "spec")?;
        let [container] = list(spec.get("containers")) else {
            bail!("spec.containers: exactly one is understood");
        };
        let container = object(Some(container), "spec.containers[0]")?;
        if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
            bail!("spec.hostNetwork: only true is understood");
        }
        for field in ["hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
            if spec.contains_key(field) {
                bail!("spec.{field} is not understood");
            }
        }
        let rights = rights(spec, container)?;
        let mut command = list(container.get("command")).iter().map(Value::as_str);
        let program = command.next().flatten().context("command is empty")?;
        let mut env = environment(container, around)?;
        let arguments: Option<Vec<String>> = command.map(|w| Some(filled(w?, &env))).collect();
        let (host, port) = &around.server;
        env.extend([
            (
                "PATH".to_owned(),
                format!("{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"),
            ),
            ("KUBERNETES_SERVICE_HOST".to_owned(), host.clone()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), port.to_string()),
        ]);
        Ok(Self {
            program: around.programs.join(program),
            arguments: arguments.context("command: a word is no text")?,
            env,
            mounts: mounts(spec, container, around)?,
            ..rights
        })
    }

    /// Becomes the container's program.
    pub(crate) fn run(&self, root: &Path) -> Result<()> {
        self.enter(root).context("the container's root")?;
        let name = self.program.file_name().context("program")?;
        let capabilities: Vec<String> = self
            .capabilities
            .iter()
            .map(|name| format!("+{}", name.to_lowercase()))
            .collect();
        let bounding = [vec!["-all".to_owned()], capabilities].concat().join(",");
        let mut command = Command::new("setpriv");
        command
            .env_clear()
            .envs(&self.env)
            .current_dir("/")
            .args(["--reuid", &self.uid.to_string()])
            .args(["--regid", &self.gid.to_string()])
            .args(["--inh-caps=-all", &format!("--bounding-set={bounding}")]);
        if self.groups.is_empty() {
            command.arg("--clear-groups");
        } else {
            let groups: Vec<String> = self.groups.iter().map(u64::to_string).collect();
            command.args(["--groups", &groups.join(",")]);
        }
        if self.no_new_privileges {
            command.arg("--no-new-privs");
        }
        let error = command
            .arg("--")
            .arg(Path::new(PROGRAMS).join(name))
            .args(&self.arguments)
            .exec();
        Err(error).context("starting setpriv")
    }

    /// Makes the root and enters it.
    fn enter(&self, root: &Path) -> Result<()> {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        std::fs::create_dir_all(root)?;
        memory(root)?;
        for path in IMAGE.map(Path::new).into_iter().filter(|p| p.exists()) {
            let to = under(root, path);
            if path.is_symlink() {
                symlink(std::fs::read_link(path)?, &to)?;
            } else {
                bind(path, &to, !path.starts_with("/dev"))?;
            }
        }
        let name = self.program.file_name().context("program")?;
        bind(
            &self.program,
            &under(root, Path::new(PROGRAMS)).join(name),
            true,
        )?;
        // Engines make these in every container.
        for (name, to) in [
            ("fd", ""),
            ("stdin", "/0"),
            ("stdout", "/1"),
            ("stderr", "/2"),
        ] {
            symlink(format!("/proc/self/fd{to}"), root.join("dev").join(name))?;
        }
        bind(Path::new("/proc"), &root.join("proc"), false)?;
        // As engines do: a container without `privileged` cannot set the kernel's knobs.
        bind(Path::new("/proc/sys"), &root.join("proc/sys"), true)?;
        bind(Path::new("/sys"), &root.join("sys"), true)?;
        std::fs::create_dir_all(root.join("var"))?;
        std::fs::create_dir_all(root.join("run"))?;
        symlink("../run", root.join("var/run"))?;
        for Mount {
            from,
            to,
            read_only,
        } in &self.mounts
        {
            let to = under(root, to);
            match from {
                Some(from) => bind(from, &to, *read_only)?,
                None => {
                    std::fs::create_dir_all(&to)?;
                    memory(&to)?;
                }
            }
        }
        std::env::set_current_dir(root)?;
        // The old root on top of the new one, and away with it.
        pivot_root(".", ".").context("pivot_root")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        if self.read_only {
            read_only(Path::new("/"))?;
        }
        Ok(())
    }
}

/// Who a container is and what it may; everything else is empty.
fn rights(spec: &Map<String, Value>, container: &Map<String, Value>) -> Result<Container> {
    let empty = Map::new();
    let context = |of: &Map<String, Value>| match of.get("securityContext") {
        Some(Value::Object(context)) => context.clone(),
        _ => empty.clone(),
    };
    let (pod, own) = (context(spec), context(container));
    let user = ["runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile"];
    let mut pods = user.to_vec();
    pods.push("supplementalGroups");
    let mut owns = user.to_vec();
    owns.extend([
        "allowPrivilegeEscalation",
        "readOnlyRootFilesystem",
        "capabilities",
    ]);
    for (what, context, known) in [("pod", &pod, pods), ("container", &own, owns)] {
        if let Some(field) = context.keys().find(|key| !known.contains(&key.as_str())) {
            bail!("securityContext.{field} of the {what} is not understood");
        }
    }
    let either = |field: &str| own.get(field).or_else(|| pod.get(field));
    let number = |field: &str| either(field).and_then(Value::as_u64).unwrap_or(0);
    let flag = |field: &str| either(field).and_then(Value::as_bool);
    let uid = number("runAsUser");
    if flag("runAsNonRoot") == Some(true) && uid == 0 {
        bail!("securityContext.runAsNonRoot, and no runAsUser: the image's user is 0");
    }
    let profile = either("seccompProfile").and_then(|p| p.get("type")?.as_str());
    if !matches!(profile, None | Some("RuntimeDefault" | "Unconfined")) {
        bail!(
            "securityContext.seccompProfile {profile:?}: only the engine's default is understood"
        );
    }
    let words = |path: &str| -> Vec<String> {
        let found = own.get("capabilities").and_then(|c| c.get(path));
        let words = list(found).iter().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    };
    if words("drop") != ["ALL"] {
        bail!("securityContext.capabilities.drop: only [ALL] is understood");
    }
    let groups = list(pod.get("supplementalGroups"));
    Ok(Container {
        program: PathBuf::new(),
        arguments: Vec::new(),
        env: BTreeMap::new(),
        uid,
        gid: number("runAsGroup"),
        groups: groups.iter().filter_map(Value::as_u64).collect(),
        capabilities: words("add"),
        no_new_privileges: flag("allowPrivilegeEscalation") == Some(false),
        read_only: flag("readOnlyRootFilesystem") == Some(true),
        mounts: Vec::new(),
    })
}

fn environment(
    container: &Map<String, Value>,
    around: &Surroundings,
) -> Result<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for variable in list(container.get("env")) {
        let name = word(variable, "/name")?;
        let field = variable.pointer("/valueFrom/fieldRef/fieldPath");
        let value = match field.and_then(Value::as_str) {
            Some(path) => around
                .fields
                .get(path)
                .with_context(|| format!("env {name}: field {path} is not understood"))?
                .clone(),
            None => word(variable, "/value")?.to_owned(),
        };
        env.insert(name.to_owned(), value);
    }
    Ok(env)
}

/// `$(NAME)` is the value of that variable.
fn filled(word: &str, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(word.to_owned(), |word, (name, value)| {
        word.replace(&format!("$({name})"), value)
    })
}

fn mounts(
    spec: &Map<String, Value>,
    container: &Map<String, Value>,
    around: &Surroundings,
) -> Result<Vec<Mount>> {
    let mut found = vec![Mount {
        from: Some(around.account.clone()),
        to: ACCOUNT.into(),
        read_only: true,
    }];
    let volumes = list(spec.get("volumes"));
    for entry in list(container.get("volumeMounts")) {
        let name = word(entry, "/name")?;
        let known = ["name", "mountPath", "readOnly"];
        let fields = object(Some(entry), "volumeMounts")?;
        if let Some(field) = fields.keys().find(|key| !known.contains(&key.as_str())) {
            bail!("volumeMounts {name}: {field} is not understood");
        }
        let volume = volumes
            .iter()
            .find(|volume| volume.get("name").and_then(Value::as_str) == Some(name))
            .with_context(|| format!("volumeMounts {name}: there is no such volume"))?;
        found.push(Mount {
            from: source(volume, around).with_context(|| format!("volume {name}"))?,
            to: word(entry, "/mountPath")?.into(),
            read_only: entry.get("readOnly") == Some(&Value::Bool(true)),
        });
    }
    Ok(found)
}

/// The folder of a volume; `None` is an empty one in memory.
fn source(volume: &Value, around: &Surroundings) -> Result<Option<PathBuf>> {
    if volume.get("configMap").is_some() {
        return Ok(Some(around.config.clone()));
    }
    if volume.get("emptyDir").is_some() {
        return Ok(None);
    }
    let path = word(volume, "/hostPath/path")?;
    let folder = around
        .host
        .get(path)
        .with_context(|| format!("hostPath {path}: no node of the lab has it"))?;
    match volume.pointer("/hostPath/type").and_then(Value::as_str) {
        // A kubelet refuses the pod then.
        Some("Directory") if !folder.is_dir() => bail!("hostPath {path}: there is no such folder"),
        Some("Directory" | "DirectoryOrCreate" | "") | None => Ok(Some(folder.clone())),
        Some(other) => bail!("hostPath {path}: type {other} is not understood"),
    }
}

fn object<'a>(value: Option<&'a Value>, what: &str) -> Result<&'a Map<String, Value>> {
    let object = value.and_then(Value::as_object);
    object.with_context(|| format!("{what} is missing or no object"))
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn word<'a>(value: &'a Value, path: &str) -> Result<&'a str> {
    let found = value.pointer(path).and_then(Value::as_str);
    found.with_context(|| format!("{path} is missing or no text in {value}"))
}

/// An absolute path below a folder.
fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Binds a file or folder, and makes what it is bound to.
fn bind(from: &Path, to: &Path, closed: bool) -> Result<()> {
    let none: Option<&str> = None;
    if !to.exists() {
        if from.is_dir() {
            std::fs::create_dir_all(to)?;
        } else {
            std::fs::create_dir_all(to.parent().unwrap_or(to))?;
            std::fs::write(to, "")?;
        }
    }
    mount(Some(from), to, none, MsFlags::MS_BIND, none)
        .with_context(|| format!("binding {} to {}", from.display(), to.display()))?;
    if closed { read_only(to) } else { Ok(()) }
}

fn read_only(path: &Path) -> Result<()> {
    let none: Option<&str> = None;
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, path, none, flags, none)
        .with_context(|| format!("making {} read-only", path.display()))
}

fn memory(path: &Path) -> Result<()> {
    let kind = Some("tmpfs");
    mount(kind, path, kind, MsFlags::empty(), Some("mode=755"))
        .with_context(|| format!("a file system in memory at {}", path.display()))
}

#[cfg(test)]
mod tests;
