"""What each finding about a topology means: one text for every door that explains a code."""

from collections.abc import Mapping

FINDINGS: Mapping[str, str] = {
    "TOP001": """Rows or parts of rows of the matrix were cut off.

Why: a matrix is symmetric, so GPU5's row is also GPU5's column in the rows that are there: nothing
is guessed, but a pair of which both rows were cut stays unknown (TOP002).

Instead: paste the whole output; `nvidia-smi topo -m > topology.txt` avoids the terminal's width.

Source: `nvidia-smi topo -m` prints each pair twice; every complete matrix in tests/topologies does.""",
    "TOP002": """How some pairs of GPUs are connected was not in what was read.

Why: a list of GPUs, `nvidia-smi nvlink -s` or a matrix cut short names GPUs without saying what
lies between each two of them.

Instead: add the whole output of `nvidia-smi topo -m`; several outputs may stand in one paste.

Source: nvidia-smi's help: `nvlink -s` shows the state of links, `topo -m` which GPUs they join.""",
    "TOP003": """The matrix is of a kind that leaves NVLink out.

Why: `nvidia-smi topo -mp` prints the PCIe class of every pair, of pairs with NVLink too, and its
legend has no NV# line. Read as it stands, a DGX would look like a PCIe box.

Instead: paste `nvidia-smi topo -m`, without the p.

Source: nvidia-smi's help: "-mp | --matrix_pci: Display the GPUDirect communication matrix for the
system (PCI Only)".""",
    "TOP004": """Every pair reads PHB, which is what virtual machines print whatever the wiring.

Why: a hypervisor that passes GPUs through shows them on one virtual host bridge. Sockets, PCIe
switches and peer-to-peer limits beneath it cannot be seen. On bare metal it does mean one socket.

Instead: ask the provider for the machine's block diagram, or measure with nccl-tests and give the
result as a bandwidth.

Source: nvidia-smi's legend (PHB: "traversing PCIe as well as a PCIe Host Bridge"); NCCL's
documentation on virtual machines and NCCL_TOPO_FILE.""",
    "TOP005": """A machine built like one with NVLink shows none.

Why: eight SXM GPUs always have NVLink. Where a matrix shows none, the fabric manager is not
running, a driver was updated without it, or links failed; training then runs over PCIe, at a
fraction of the bandwidth.

Instead: check `nvidia-smi nvlink -s` and `systemctl status nvidia-fabricmanager`; if these are PCIe
cards, there is nothing to mend.

Source: NVIDIA Fabric Manager for NVSwitch systems, user guide; deepseek-ai/DeepEP issue 128.""",
    "TOP006": """The paste holds more than one matrix, and they differ.

Why: a node has one matrix. Two that differ are two nodes, or `topo -m` beside `topo -mp`.

Instead: paste one node's output; nodes are taken to be alike.

Source: `nvidia-smi topo` describes the machine that it runs on.""",
    "TOP007": """Which GPUs the NVLinks join was concluded, not read.

Why: `nvidia-smi nvlink -s` counts the links of each GPU and does not say where they lead. When two
GPUs alone have links, and equally many, the links join these two, unless they lead to GPUs that
this machine does not show.

Instead: add `nvidia-smi topo -m`.

Source: nvidia-smi's help on `nvlink -s` and `nvlink -p`.""",
    "TOP008": """The links that are up do not agree with the matrix.

Why: `nvidia-smi nvlink -s` lists links that the matrix does not show, or fewer than it shows: links
are down, NVLink was hidden (TOP003), or the two outputs are of different machines.

Instead: run both commands again, one after the other; look for inactive links.

Source: NV# in the matrix is "a bonded set of # NVLinks" (nvidia-smi's legend), so a GPU has at
least as many as any of its pairs.""",
    "TOP009": """XGMI pairs are counted as one link each.

Why: rocm-smi prints that two GPUs are joined by XGMI and over how many hops, not by how many links.

Instead: give the measured bandwidth of the node if it is known (rccl-tests).

Source: `rocm-smi --showtopo`: tables of weight, hops and link type.""",
    "TOP010": """Peer-to-peer copies between GPUs do not work.

Why: without them every copy passes through the host's memory: half the bandwidth or less, and worse
with each GPU. Drivers for GeForce cards refuse them; on servers ACS or an IOMMU may.

Instead: on servers disable ACS in the BIOS or the IOMMU; else prefer plans that communicate little.

Source: `nvidia-smi topo -p2p` and its legend; NCCL's documentation, troubleshooting, on ACS;
NVIDIA/nccl issues 667 and 1309.""",
    "TOP011": """Every pair reads SYS, but the NUMA column shows which GPUs share a socket.

Why: firmware that hides host bridges from the driver makes neighbours look like strangers. The
bandwidth within a NUMA node is better than SYS says.

Instead: nothing; the split is taken from the NUMA column.

Source: NVIDIA/go-gpuallocator issue 17; nvidia-smi's legend (SYS crosses NUMA nodes).""",
    "TOP012": """No network adapter is nearer to a GPU than the link between sockets.

Why: the adapters may sit on the other socket, and sending then crosses to it. But on superchips,
whose GPUs hang on the CPU by NVLink-C2C, and in virtual machines every adapter reads SYS wherever
it is, and the matrix cannot tell which one serves which GPU.

Instead: let NCCL choose, or set NCCL_IB_HCA per rank from the NUMA node of each adapter.

Source: NVIDIA GB200 matrices in tests/topologies; NCCL's documentation on NCCL_IB_HCA.""",
}
"""Statement, Why, Instead and Source by code."""
