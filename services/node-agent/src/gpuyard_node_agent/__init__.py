"""node-agent: makes real on one node what placement has committed, and says what is real.

Owns: what runs on its node, and the journal on its disk.
Hears: `StartV1` and `StopV1` of its own node; placement's answer to each heartbeat; `InjectFaultAskV1` where the cards are simulated.
Says: `WorkloadStartedV1`, `WorkloadEndedV1`, `WorkloadRefusedV1`, `UsageTickV1`, `HealthEventV1`, `TelemetryV1`, `LogLinesV1`, and the
heartbeat `HeartbeatV1`.
Never: prices, decides where work goes, trusts an attempt below one that it knows, or starts one attempt twice.

Start reading at :mod:`gpuyard_node_agent.handlers` (what an order does), then :mod:`gpuyard_node_agent.processes.keeper` (who holds the
processes while the agent is dead) and :mod:`gpuyard_node_agent.journal`.
"""

VERSION = "0.1.0"
