//! A file that is replaced as kubelet replaces it.
use super::*;

const TEXT: &str = "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"unmanaged\"\n";

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("noverlay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// As kubelet does it: a new folder, and a link to it that is renamed over the old one.
    fn publish(&self, version: &str, text: &str) -> PathBuf {
        let folder = self.0.join(version);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("noverlay.toml"), text).unwrap();
        let link = self.0.join("data.new");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        std::fs::rename(&link, self.0.join("data")).unwrap();
        self.0.join("data/noverlay.toml")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_is_followed_and_what_is_wrong_or_gone_changes_nothing() {
    let dir = Dir::new("followed");
    let path = dir.publish("1", TEXT);
    let daemon = settings::Daemon::ClusterManager;
    let settings = settings::load(&path, daemon).unwrap();
    let mut followed = Configuration::follow(&path, daemon, settings.clone());
    assert_eq!(followed.now().settings, settings);

    dir.publish("2", &TEXT.replace("enabled", "disabled"));
    followed.changed().await;
    let now = followed.now();
    let options = now.settings.network.transport.no_overlay().unwrap();
    assert!(!options.outbound_snat);
    assert_eq!(now.refused, Vec::<String>::new());

    dir.publish("3", &TEXT.replace("enabled", "never"));
    followed.changed().await;
    let wrong = followed.now();
    assert_eq!(wrong.settings, now.settings);
    let [refused] = wrong.refused.as_slice() else {
        panic!("{wrong:?}")
    };
    assert!(
        refused.contains("[no-overlay] outbound-snat") && refused.contains("never"),
        "{refused}"
    );

    std::fs::remove_file(dir.0.join("data")).unwrap();
    followed.changed().await;
    let gone = followed.now();
    assert_eq!(gone.settings, now.settings);
    assert!(
        gone.refused
            .concat()
            .contains("cannot read configuration file"),
        "{gone:?}"
    );

    dir.publish("4", TEXT);
    followed.changed().await;
    let back = followed.now();
    assert_eq!(back.settings, settings);
    assert_eq!(back.refused, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_object_says_is_followed_over_the_file_and_what_is_wrong_or_gone_changes_nothing()
 {
    let dir = Dir::new("operator");
    let over = dir.0.join("operator.toml");
    let snat = |word: &str| format!("[no-overlay]\noutbound-snat = \"{word}\"\n");
    std::fs::write(&over, snat("disabled")).unwrap();
    let section = format!("[openshift]\nenable = true\noperator-file = {over:?}\n");
    let path = dir.publish("1", &format!("{TEXT}{section}"));
    let daemon = settings::Daemon::NodeAgent;
    let settings = settings::load(&path, daemon).unwrap();
    let mut followed = Configuration::follow(&path, daemon, settings);
    let snats = |followed: &Configuration| {
        let transport = followed.now().settings.network.transport;
        transport.no_overlay().unwrap().outbound_snat
    };
    assert!(!snats(&followed), "the object's word, not the file's");

    std::fs::write(&over, snat("enabled")).unwrap();
    followed.changed().await;
    assert!(snats(&followed));

    std::fs::write(&over, snat("never")).unwrap();
    followed.changed().await;
    assert!(snats(&followed));
    let refused = followed.now().refused.concat();
    assert!(
        refused.contains("outbound-snat") && refused.contains("operator.toml"),
        "{refused}"
    );

    std::fs::remove_file(&over).unwrap();
    followed.changed().await;
    assert!(snats(&followed));
    let refused = followed.now().refused.concat();
    assert!(refused.contains("cannot read"), "{refused}");

    std::fs::write(&over, snat("disabled")).unwrap();
    followed.changed().await;
    assert!(!snats(&followed));
    assert_eq!(followed.now().refused, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_same_text_again_is_no_change_and_fixed_settings_never_change() {
    let dir = Dir::new("same");
    let path = dir.publish("1", TEXT);
    let daemon = settings::Daemon::ClusterManager;
    let settings = settings::load(&path, daemon).unwrap();
    let mut followed = Configuration::follow(&path, daemon, settings.clone());
    let mut fixed = Configuration::from(settings);
    dir.publish("2", TEXT);
    let ten = Duration::from_secs(10);
    assert!(tokio::time::timeout(ten, followed.changed()).await.is_err());
    assert!(tokio::time::timeout(ten, fixed.changed()).await.is_err());
}
