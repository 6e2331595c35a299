def swap_out(self, plan: StepPlan, request: Request) -> None:
    size = self.pool.block_size
    count = (request.num_computed_tokens + size - 1) // size
    on_host = self.host.allocate(count)
    for index in range(count):
        plan.swap_out.append((request.block_table[index], on_host[index]))
    self.pool.free(request.block_table)
    request.block_table, request.host_blocks = [], on_host
    request.num_swaps += 1
