"""Ask for a job with the SDK, wait for its end, and print what it wrote and what it cost.

python examples/submit_with_sdk.py        (finds the local stack, or takes GPUYARD_URL and GPUYARD_TOKEN)

With an operator's token, as the local stack has it, GPUYARD_TENANT says whose job it is.
"""

from gpuyard import Client


def main() -> None:
    """Submit, wait, print."""
    with Client() as yard:
        job = yard.submit(name="hello", command=["/bin/sh", "-c", "echo hello from $CUDA_VISIBLE_DEVICES"], gpu="T4:1", max_seconds=60)
        job = yard.wait(job.job_id, timeout_seconds=120)
        print(job.name, job.state, job.reason)  # noqa: T201
        for line in yard.logs(job.job_id):
            print(line.text)  # noqa: T201
        print(yard.cost(job.job_id).total_micros, "micro-units")  # noqa: T201


if __name__ == "__main__":
    main()
