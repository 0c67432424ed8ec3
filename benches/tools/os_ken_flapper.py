"""An application of os-ken that sends the rule of an experiment repeatedly.

The experiment listens at SHUNT_FLAPPER. After the features reply of a switch, the application connects
to the experiment and reads commands, one line of JSON each. For each command, the application sends a
flow-mod and a barrier request. After the barrier reply, it writes a line: the number of the command, the time of the flow-mod,
and the time of the reply, both in nanoseconds of the system's monotonic clock. If the switch sent an
error, the line ends with `error` and the message as os-ken shows it.
"""

import json
import os
import time

from eventlet.green import socket
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3


class Flapper(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.replies = hub.Queue()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def _features(self, event):
        hub.spawn(self._serve, event.msg.datapath)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def _barrier_reply(self, event):
        self.replies.put(str(time.monotonic_ns()))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def _error(self, event):
        self.replies.put(f"error {event.msg}")

    def _serve(self, datapath):
        host, port = os.environ["SHUNT_FLAPPER"].split(":")
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in connection.makefile("r"):
            order = json.loads(line)
            sent = time.monotonic_ns()
            self._send_rule(datapath, order)
            reply = self.replies.get()
            connection.sendall(f"{order['number']} {sent} {reply}\n".encode())

    @staticmethod
    def _send_rule(datapath, order):
        ofproto, parser = datapath.ofproto, datapath.ofproto_parser
        network = order["network"].split("/")
        actions = [
            parser.NXActionRegMove(src_field="ipv4_dst", dst_field="reg1", n_bits=32),
            parser.OFPActionSetField(eth_dst=order["label"]),
            parser.OFPActionOutput(order["output"]),
        ]
        command = {"add": ofproto.OFPFC_ADD, "modify_strict": ofproto.OFPFC_MODIFY_STRICT}
        flow_mod = parser.OFPFlowMod(
            datapath,
            command=command[order["command"]],
            table_id=order["table"],
            priority=order["priority"],
            match=parser.OFPMatch(eth_type=0x0800, ip_proto=17, ipv4_dst=tuple(network)),
            instructions=[parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)],
        )
        datapath.send_msg(flow_mod)
        datapath.send_msg(parser.OFPBarrierRequest(datapath))
