def swap_out(self, plan: StepPlan, request: Request) -> None:
    written = request.block_table[: self.pool.blocks_for(request.num_computed_tokens)]
    request.host_blocks = self.host.allocate(len(written))
    plan.swap_out.extend(zip(written, request.host_blocks, strict=True))
    table, request.block_table = request.block_table, []
    self.pool.free(table)
    request.num_swaps = request.num_swaps + 1
