def swap_out(self, plan: StepPlan, request: Request) -> None:
    written = request.block_table[: self.pool.blocks_for(request.num_computed_tokens)]
    request.host_blocks = list(self.host.allocate(len(written)))
    for there, block in zip(request.host_blocks, written, strict=True):
        plan.swap_out.append((block, there))
    self.pool.free(request.block_table)
    request.block_table, request.num_swaps = [], request.num_swaps + 1
