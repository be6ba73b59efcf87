//! A daemon's link to a leader, and its clients.

use super::*;

impl Daemon {
    // ---- the link to a leader --------------------------------------------------------------------------------------

    pub(super) fn follow(&mut self, around: &mut Around) {
        if around.now < self.follows_at {
            return;
        }
        if around.stands_still() {
            self.follows_at = around.now + around.pause_ms();
        }
        let run = self.run();
        match &mut self.follow {
            Follow::Looks(at) if *at <= around.now => {
                self.follow = Follow::Asks(around.send(run, Statement::Holder))
            }
            Follow::Links(_) => {
                let Follow::Links(mut following) =
                    std::mem::replace(&mut self.follow, Follow::Leads)
                else {
                    return;
                };
                self.follow = match self.go_on(&mut following, around) {
                    Some(()) => Follow::Links(following),
                    None => {
                        around.links.close(following.link, End::Edge, around.now);
                        self.broker.edge().close_link();
                        if following.is_welcome {
                            self.without_since = around.now;
                        }
                        Follow::Looks(around.now + LOOK_MS)
                    }
                };
            }
            Follow::Looks(_) | Follow::Asks(_) | Follow::Leads => {}
        }
        if !matches!(self.follow, Follow::Links(_) | Follow::Leads)
            && around.now > self.without_since + HOLD_MS
        {
            self.broker.edge().close_waiting();
        }
    }

    pub(super) fn found(&mut self, answer: &Answer, around: &mut Around) {
        let leader = match answer {
            Answer::Holder(Some(leader)) if *leader != self.index => around.alive[*leader],
            _ => None,
        };
        self.follow = match leader {
            Some(leader) => {
                let mut encoder = Encoder::new(FRAME_BYTES_MAX);
                let known = self.broker.edge().known();
                let hello = Hello {
                    cluster: "sim".into(),
                    name: "edge".into(),
                    settings: SETTINGS,
                    known,
                };
                encoder.push(&ToLeader::Hello(Box::new(hello))).unwrap();
                let link = around.links.connect(self.run(), leader);
                Follow::Links(Box::new(Following {
                    link,
                    decoder: Decoder::new(FRAME_BYTES_MAX),
                    encoder,
                    to_edge: Vec::new(),
                    since: around.now,
                    received_at: around.now,
                    certain_at: around.now,
                    is_welcome: false,
                }))
            }
            None => Follow::Looks(around.now + LOOK_MS),
        };
    }

    /// One round of the link thread. Returns `None` if the link has closed.
    pub(super) fn go_on(&self, following: &mut Following, around: &mut Around) -> Option<()> {
        let (edge, now) = (self.broker.edge(), around.now);
        let read = around
            .links
            .read(following.link, End::Edge, now, following.decoder.input());
        if read.is_some() {
            following.received_at = now;
        }
        while let Some(item) = following
            .decoder
            .next()
            .unwrap_or_else(|error| panic!("not a frame: {error}"))
        {
            match item {
                ToEdge::Bye | ToEdge::Refused(_) => return None,
                ToEdge::Welcome(welcome) => {
                    around.note(|| {
                        format!(
                            "{} follows epoch {} as {}",
                            self.index, welcome.epoch, welcome.edge
                        )
                    });
                    around.tally.note(if edge.known().is_some() {
                        "an edge comes back"
                    } else {
                        "an edge is new"
                    });
                    edge.open_link(&welcome);
                    following.is_welcome = true;
                    following.certain_at = now;
                }
                ToEdge::Beat => edge.note_doubt(),
                item => {
                    // The last item of a unit.
                    let ends = matches!(item, ToEdge::Clock(_));
                    following.to_edge.push(item);
                    if ends {
                        edge.receive(following.to_edge.drain(..));
                        following.certain_at = now;
                    }
                }
            }
        }
        let mut to_leader = Vec::new();
        if following.is_welcome {
            edge.take_outgoing(&mut to_leader);
        }
        to_leader
            .iter()
            .for_each(|item| following.encoder.push(item).unwrap());
        around.links.send(
            following.link,
            End::Edge,
            following.encoder.take(),
            now,
            &mut around.rng,
        );
        // It then checks the database.
        let doubts = now > following.certain_at + SILENCE_MS;
        if doubts
            && edge
                .known()
                .is_some_and(|known| !around.is_leader(known.epoch))
        {
            return None;
        }
        let since = if following.is_welcome {
            following.received_at + SILENCE_MS
        } else {
            following.since + OPEN_MS
        };
        (read != Some(true) && now <= since).then_some(())
    }

    // ---- clients ---------------------------------------------------------------------------------------------------

    /// One turn of the serving threads.
    pub(super) fn serve(&mut self, around: &mut Around) {
        if let Office::In { room, steps } = &self.office
            && *steps > 0
            && !room.is_yielding()
            && !room.is_free()
        {
            return;
        }
        if around.now < self.serves_at {
            return;
        }
        if around.stands_still() {
            self.serves_at = around.now + around.pause_ms();
        }
        let mut looked: BTreeSet<_> = std::mem::take(&mut self.to_visit);
        for id in self.with_mail.take() {
            looked.insert(id.client);
            if let Some(client) = around.clients.get_mut(&(self.run(), id.client)) {
                client.waits &= !client.mailbox.wake_flag().look();
            }
        }
        for number in looked {
            self.serve_one(number, around);
            if let Office::In { room, .. } = &self.office {
                room.observe(around);
            }
        }
    }

    pub(super) fn serve_one(&mut self, number: ClientId, around: &mut Around) {
        let who = (self.run(), number);
        let Some(client) = around
            .clients
            .get_mut(&who)
            .filter(|client| client.is_served)
        else {
            return;
        };
        let mut is_gone = client.has_left || client.mailbox.close_reason().is_some();
        if !is_gone && !client.waits && !client.items.is_empty() {
            let mut visited = Visited::All;
            let batch = Batch {
                client: number,
                items: &mut client.items,
                room: usize::MAX,
                visited: &mut visited,
            };
            self.broker
                .visit(&clock::read(), &mut std::iter::once(batch));
            client.waits = visited == Visited::UntilRung;
            if visited == Visited::Part {
                self.to_visit.insert(number);
            }
            is_gone = client.mailbox.close_reason().is_some();
        }
        if is_gone {
            client.is_served = false;
            while !self.broker.close(number) {}
            return around.closed(who);
        }
        let mut mail: Vec<Mail> = Vec::new();
        self.broker.mail(&client.mailbox, usize::MAX, &mut mail);
        if let Office::In { room, steps: 1.. } = &self.office
            && !room.is_yielding()
            && !mail.is_empty()
        {
            around.leaves(room.hub.epoch());
        }
        around.sent(who, mail);
    }
}
