"""What a workload's environment is: its job's variables, the node's, and nothing of the agent's own."""

from gpuyard_node_agent.domain.marks import ALLOCATION, RANK
from gpuyard_node_agent.domain.model import Order

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment_of(order: Order, *, work_dir: str, checkpoint_dir: str, node_id: str) -> dict[str, str]:
    """The complete environment. CUDA sees exactly the order's cards, by UUID; ranks find each other by the usual variables."""
    cards = ",".join(part.gpu_uuid for part in order.slices)
    found = {"PATH": DEFAULT_PATH, "HOME": work_dir, "LANG": "C.UTF-8", **order.env}
    found.update(
        {
            "CUDA_VISIBLE_DEVICES": cards,
            "NVIDIA_VISIBLE_DEVICES": cards or "void",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "RANK": str(order.rank),
            "WORLD_SIZE": str(order.world_size),
            "LOCAL_RANK": str(order.local_rank),
            "LOCAL_WORLD_SIZE": str(order.local_world_size),
            "MASTER_ADDR": order.master_addr,
            "MASTER_PORT": str(order.master_port),
            "GPUYARD_JOB_ID": order.job_id,
            "GPUYARD_TENANT": order.tenant,
            RANK: str(order.rank),
            "GPUYARD_ATTEMPT": str(order.attempt),
            ALLOCATION: order.allocation_id,
            "GPUYARD_NODE_ID": node_id,
            "GPUYARD_WORK_DIR": work_dir,
            "GPUYARD_CHECKPOINT_DIR": checkpoint_dir,
            "GPUYARD_GPU_COUNT": str(len(order.slices)),
            "GPUYARD_GPU_MEMORY_MIB": ",".join(str(part.memory_mib) for part in order.slices),
            "GPUYARD_GPU_SHARE_MILLI": ",".join(str(part.milli) for part in order.slices),
            "GPUYARD_CPU_MILLI": str(order.cpu_milli),
            "GPUYARD_MEMORY_MIB": str(order.memory_mib),
        }
    )
    return found
