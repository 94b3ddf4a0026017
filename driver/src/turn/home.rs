//! A home's own requests on the core, but for the opening of an adapter.

use super::objects::Objects;
use crate::connector::core::Connectors;
use crate::cx::Cx;
use crate::platform::request::{CheckPaths, List, Resolved, SetAddresses, SetTrafficClasses, Stop};
use crate::request::Request;

impl Request for SetAddresses {
    type Objects<'a> = &'a mut Connectors;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, connectors: &mut Connectors) {
        let Self { addresses, zone } = self;
        if zone != 0 {
            cx.paths.zone = zone;
        }
        cx.paths.neighbours.set_addresses(&addresses);
        connectors.fail_without_address(cx, &addresses);
        cx.device.set_addresses(cx.now, addresses);
        cx.readdressed = true;
    }

    fn refuse(self, _: &mut Cx) {}
}

impl Request for Resolved {
    type Objects<'a> = &'a mut Connectors;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, connectors: &mut Connectors) {
        connectors.finish_resolution(cx, self.remote, self.mac, |tci| tci);
    }

    fn refuse(self, _: &mut Cx) {}
}

impl Request for CheckPaths {
    type Objects<'a> = ();

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, (): ()) {
        cx.paths.restart_checks();
    }

    fn refuse(self, _: &mut Cx) {}
}

impl Request for SetTrafficClasses {
    type Objects<'a> = ();

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, (): ()) {
        cx.device.set_traffic_classes(self.classes);
    }

    fn refuse(self, _: &mut Cx) {}
}

impl Request for List {
    type Objects<'a> = &'a mut Objects;

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        Some(0)
    }

    fn run(self, cx: &mut Cx, objects: &mut Objects) {
        (self.listed)(Some(objects.endpoints(cx)));
    }

    fn refuse(self, _: &mut Cx) {
        (self.listed)(None);
    }
}

impl Request for Stop {
    type Objects<'a> = ();

    fn bytes(&self, _: &mut Cx) -> Option<usize> {
        None
    }

    fn run(self, cx: &mut Cx, (): ()) {
        cx.shard.end();
    }

    fn refuse(self, _: &mut Cx) {}
}
