def run(loop: "EngineLoop", receive: Receive, send: Send) -> None:
    stopped = False
    while not stopped:
        message = receive(False) if loop.has_work else receive(True)
        if message is None:
            send(loop.step())
        elif isinstance(message, Stop):
            stopped = True
        elif (answer := loop.handle(message)) is not None:
            send(answer)
