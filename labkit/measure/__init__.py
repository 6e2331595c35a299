"""What is measured and how: latency from time stamps, SLOs, capacity and cost, work in tokens, the
machine's roofline.

One definition of each figure for notebooks, benchmarks and the server. May import every room
but `workbook`.
"""
