"""A pass-through proxy in Python, written from wit/consort-proxy.wit alone.

It takes part in everything, passes everything on, and looks at the answer of one method, so that both ways of passing
a request on are used: without an id (the answer goes straight back) and with one (the answer comes here first).
"""

from componentize_py_types import Err
from wit_world import How, Interest, Receipt, Registration, WitWorld
from wit_world.imports import channel
from wit_world.imports.channel import Peer

# The method whose answers this proxy sees before it passes them on.
WATCHED = "session/prompt"


class WitWorld(WitWorld):
    def __init__(self):
        self.next_id = 0
        # The ticket that each request under an own id was sent on behalf of, and the side that it came from.
        self.waiting = {}

    def start(self, config):
        interests = [
            Interest(Peer.CLIENT, "*", How.INTERCEPT),
            Interest(Peer.AGENT, "*", How.INTERCEPT),
        ]
        return Registration(interests, protocol_version=1)

    def receive(self, source, ticket, message):
        match message:
            case channel.Message_Request(request):
                self.request(source, ticket, request)
            case channel.Message_Notification(notification):
                self.notification(source, ticket, notification)
            case channel.Message_Response(response):
                self.response(response)
        return Receipt.DONE

    def request(self, source, ticket, request):
        own = None
        if request.method == WATCHED:
            own = self.next_id
            self.next_id += 1
            self.waiting[own] = (source, ticket)
        onward = channel.Request(own, ticket, request.method, request.params)
        send(opposite(source), channel.Message_Request(onward))

    def notification(self, source, ticket, notification):
        if notification.method.startswith("$/"):
            return
        onward = channel.Notification(ticket, notification.method, notification.params)
        send(opposite(source), channel.Message_Notification(onward))

    def response(self, response):
        source, ticket = self.waiting.pop(response.id)
        send(source, channel.Message_Response(channel.Response(ticket, response.outcome)))


def opposite(source):
    return Peer.AGENT if source == Peer.CLIENT else Peer.CLIENT


def send(to, message):
    try:
        channel.send(to, message)
    except Err as refusal:
        # Standard error is the proxy's log.
        import sys

        print(f"refused: {refusal.value}", file=sys.stderr)
