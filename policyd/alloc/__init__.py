"""The allocation core: quota, order, flavors, plans, over integers and names. Pure."""
