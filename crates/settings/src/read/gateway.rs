//! `[gateway]`, and the addresses of an overlay.
//! In: the section. Out: [`Gateway`]. Invariant: subnets are of the family that their key names. Not here: overlaps between sections.

use model::Prefix;
use model::address::Family;
use model::gateway::{BgpDefault, GatewayMode};
use model::network::Transport;

use super::Keys;
use crate::{Gateway, SettingsError};

const SECTION: &str = "gateway";

impl Keys<'_> {
    pub(super) fn gateway(&mut self) -> Result<Gateway, SettingsError> {
        let r = &mut self.0;
        let mode = r.word(
            SECTION,
            "mode",
            &[
                ("shared", GatewayMode::Shared),
                ("local", GatewayMode::Local),
            ],
        )?;
        let interface = r
            .text(SECTION, "interface")?
            .unwrap_or_else(|| "br-ex".to_owned());
        let next_hops = r
            .list(SECTION, "next-hop", "addresses separated by commas")?
            .unwrap_or_default();
        let join_subnets = [
            self.subnet("v4-join-subnet", "100.64.0.0/16", Family::V4)?,
            self.subnet("v6-join-subnet", "fd98::/64", Family::V6)?,
        ];
        let masquerade_subnets = [
            self.subnet("v4-masquerade-subnet", "169.254.169.0/29", Family::V4)?,
            self.subnet("v6-masquerade-subnet", "fd69::/125", Family::V6)?,
        ];
        Ok(Gateway {
            mode: mode.unwrap_or(GatewayMode::Shared),
            interface,
            next_hops,
            join_subnets: join_subnets.into(),
            masquerade_subnets: masquerade_subnets.into(),
            ephemeral_port_range: self.port_range()?,
            bgp_default: self
                .0
                .word(
                    SECTION,
                    "bgp-default",
                    &[
                        ("ignore", BgpDefault::Ignore),
                        ("replace", BgpDefault::Replace),
                    ],
                )?
                .unwrap_or(BgpDefault::Ignore),
        })
    }

    /// `[ovnsouth] address`; `[clustermanager] v4-transit-subnet` and `v6-transit-subnet`. An address that cannot be one of this node's
    /// is refused where the default network has an overlay, else a warning, and the default holds: the file may be another
    /// program's, too.
    pub(super) fn overlay(
        &mut self,
        transport: Transport,
    ) -> Result<(String, Vec<Prefix>, Option<String>), SettingsError> {
        const SECTION: &str = "clustermanager";
        let own = || "unix:/var/run/ovn/ovnsb_db.sock".to_owned();
        let mut south = self.0.text("ovnsouth", "address")?.unwrap_or_else(own);
        let mut warning = None;
        let methods = ["unix:", "tcp:"];
        let is_local = methods.iter().any(|method| south.starts_with(method));
        if !is_local || south.contains(',') {
            let why = "allowed: unix:PATH or tcp:HOST:PORT, the one database of this node";
            let wrong = self.0.wrong("ovnsouth", "address", &south, why);
            if transport == Transport::Geneve {
                return Err(wrong);
            }
            warning = Some(format!("{wrong}; {} is used", own()));
            south = own();
        }
        let subnets = vec![
            self.subnet_in(SECTION, "v4-transit-subnet", "100.88.0.0/16", Family::V4)?,
            self.subnet_in(SECTION, "v6-transit-subnet", "fd97::/64", Family::V6)?,
        ];
        Ok((south, subnets, warning))
    }

    fn subnet(
        &mut self,
        key: &'static str,
        default: &str,
        family: Family,
    ) -> Result<Prefix, SettingsError> {
        self.subnet_in(SECTION, key, default, family)
    }

    fn subnet_in(
        &mut self,
        section: &'static str,
        key: &'static str,
        default: &str,
        family: Family,
    ) -> Result<Prefix, SettingsError> {
        let text = self.0.text(section, key)?;
        let text = text.unwrap_or_else(|| default.to_owned());
        let parsed: Result<Prefix, _> = text.parse();
        let prefix = parsed.map_err(|error| {
            let why = error.to_string();
            self.0.wrong(section, key, &text, &why)
        })?;
        if prefix.family() != family {
            let why = format!("wrong family; allowed: a prefix such as {default}");
            return Err(self.0.wrong(section, key, &text, &why));
        }
        Ok(prefix)
    }

    fn port_range(&mut self) -> Result<(u16, u16), SettingsError> {
        let text = self
            .0
            .text("gateway", "ephemeral-port-range")?
            .unwrap_or_else(|| "32768-60999".to_owned());
        text.split_once('-')
            .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)))
            .filter(|(a, b): &(u16, u16)| *a > 0 && a <= b)
            .ok_or_else(|| {
                let why = "allowed: first-last, both 1 to 65535, such as 32768-60999";
                self.0.wrong("gateway", "ephemeral-port-range", &text, why)
            })
    }
}
